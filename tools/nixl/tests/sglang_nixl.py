# SPDX-License-Identifier: LGPL-2.1-or-later
"""SGLang's own storage for NIXL, with the plugin in the place of the object store.

usage: sglang_nixl.py PATH

NIXL_PLUGIN_DIR has the plugin under the name OBJ, PYTHONPATH the folder of pools.py. Ends with "nixl SGLang: N
passed, N failed, N skipped"; exit status 1 when any failed.
"""
import sys
import traceback

from pools import LAYOUTS, PAGES, fill, indices, mha, names, same, wipe
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
from sglang.srt.mem_cache.storage.nixl.hicache_nixl import HiCacheNixl


def expect(what, got, want):
    if got != want:
        raise AssertionError(f"{what}: {got!r}, not {want!r}")


def through(layout):
    pool = mha(layout)
    extra = {"plugin": {"obj": {"active": True, "path": sys.argv[1], "bucket": "kvctx"}}}
    s = HiCacheNixl(HiCacheStorageConfig(
        tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, is_mla_model=False,
        enable_storage_metrics=False, is_page_first_layout=layout == "page_first", model_name=f"tiny/{layout}",
        extra_config=extra))
    s.register_mem_pool_host(pool)
    keys, copy = names(PAGES), fill(pool)
    expect("set", all(s.batch_set_v1(keys, indices(pool, 0, PAGES))), True)
    wipe(pool)
    expect("exists", (s.batch_exists(keys + names(1)), s.batch_exists(names(1) + keys)), (PAGES, 0))
    expect("get what is not there", any(s.batch_get_v1(names(2), indices(pool, 0, 2))), False)
    expect("get", all(s.batch_get_v1(keys, indices(pool, 0, PAGES))), True)
    expect("bit exact", same(pool, copy), True)


def main():
    failed = 0
    for layout in LAYOUTS:
        try:
            through(layout)
            print(f"ok {layout}", flush=True)
        except Exception:
            failed += 1
            print(f"not ok {layout}\n{traceback.format_exc()}", flush=True)
    print(f"nixl SGLang: {len(LAYOUTS) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
