// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A request of NIXL's as operations of kvctx.
 *
 * Words. A *descriptor* is one pair of a request: bytes of registered memory, and where in an object they are or
 * belong. An *object* is a page of kvctx; its name is hashed to the page's key. A *run* is what becomes one operation:
 * descriptors of one object that follow each other there, wherever they are in memory.
 *
 * A page is written as a whole, so a WRITE needs one run that begins with the object's first byte. A READ may have any
 * number of runs of an object, also overlapping ones.
 *
 * plan() is called by the thread that prepares the request and touches nothing shared. From post() to the end the
 * operations belong to class Transfers; who may touch which member is said there.
 */
#ifndef KVCTX_NIXL_REQUEST_H
#define KVCTX_NIXL_REQUEST_H

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend_engine.h"
#include "common/nixl_log.h"
#include "kvctx.h"

namespace kvctx_nixl {

// Memory that is pinned. Transfers' lock guards all but the constants
struct Memory {
	const uint32_t id;
	const uintptr_t base;
	bool leaving = false;	// is being deregistered: no request may begin to use it
	unsigned int users = 0;	// requests that were posted and have not ended

	Memory(uint32_t id, uintptr_t base) : id(id), base(base) {}
};

// What NIXL keeps for us beside each descriptor: of memory, or of an object
struct Metadata : nixlBackendMD {
	std::shared_ptr<Memory> memory;	// nullptr: an object
	std::string name;
	kvctx_key key{};

	explicit Metadata(std::shared_ptr<Memory> memory) : nixlBackendMD(true), memory(std::move(memory)) {}
	explicit Metadata(const std::string &name);
};

// Most that one operation may have
struct Limits {
	uint64_t page_bytes;
	uint32_t segments;
};

struct Request : nixlBackendReqH {
	// The plan
	std::vector<kvctx_sqe> operations;
	std::vector<kvctx_seg> segments;	// of all operations, one behind the other; they point here
	std::vector<std::shared_ptr<Memory>> memories;

	// How far it is
	size_t expected = 0;	// operations that will complete: all, fewer once some were given up
	size_t submitted = 0;
	size_t completed = 0;
	size_t failed = 0;
	int error = 0;		// -errno of the first that failed
	bool active = false;	// posted, and not every operation has completed

	/*
	 * Fill the plan. Both lists have as many descriptors, with their Metadata. Returns an empty text, or why it
	 * cannot be done: then the request is of no use.
	 */
	std::string plan(nixl_xfer_op_t operation, const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote,
			 const Limits &limits);
};

// NIXL's status of what kvctx says: 0, or -errno
nixl_status_t status_of(int error);

} // namespace kvctx_nixl

#endif
