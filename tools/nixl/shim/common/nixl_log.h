// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What NIXL's headers want to be given for messages. NIXL's own header of this name needs Abseil, of the version and
 * the build that the agent was linked with; a plugin that brought another one into the process would be worse than
 * one that prints for itself. Errors and warnings go to standard error, a line each, the rest nowhere.
 */
#ifndef KVCTX_NIXL_LOG_H
#define KVCTX_NIXL_LOG_H

#include <cassert>
#include <iostream>
#include <sstream>

namespace kvctx_nixl {

// One message: collected, then written as one line, so that lines of several threads do not mix
class Line {
public:
	explicit Line(const char *level) { text << "kvctx nixl " << level << ": "; }
	Line(const Line &) = delete;
	~Line() { std::cerr << text.str() + "\n"; }

	template<class T> Line &operator<<(const T &value)
	{
		text << value;
		return *this;
	}

private:
	std::ostringstream text;
};

// A message that nobody asked for
struct Silence {
	template<class T> const Silence &operator<<(const T &) const { return *this; }
};

} // namespace kvctx_nixl

#define NIXL_ERROR	kvctx_nixl::Line("error")
#define NIXL_WARN	kvctx_nixl::Line("warning")
#define NIXL_INFO	kvctx_nixl::Silence()
#define NIXL_DEBUG	kvctx_nixl::Silence()
#define NIXL_TRACE	kvctx_nixl::Silence()
#define NIXL_ASSERT(condition) assert(condition)

#endif
