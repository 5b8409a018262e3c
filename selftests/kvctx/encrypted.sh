#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A tenant whose pages are encrypted, served by the module: the tests of the contract, what is on the device, keys that are
# there, are not, or end, and the same pages by a process that has the key.
. "$(dirname "$0")/lib.sh"
[ -n "${KVCTX_KEYS-}" ] || KVCTX_KEYS=ours exec keys run "$0"

kind=encrypted
node=/dev/kvctx/t/secret

secret() { KVCTX_NODE=$node KVCTX_ENCRYPTED=1 "$@"; }

in_process() { KVCTX_NODE=/tmp/encrypted/secret "$@"; }

state() { kvctxctl tenant show t secret | sed -n 's/^encrypted .*, //p'; }

modprobe kvctx
KVCTX_BACKING=$(nvmet_null_blk encrypted 1100)
export KVCTX_BACKING KVCTX_SCRIPTS=$here
dev=$("$here/slow.sh" create "$KVCTX_BACKING")
check "format, attach" make_pool "$dev"
check "without the key no tenant is added" \
	fails 'no key kvctx:t in your keyrings' kvctxctl tenant add t secret --key kvctx:t
keys add user kvctx:short 1
check "nor with a name that is none" fails 'printable' kvctxctl tenant add t secret --key 'kvctx t'
keys add logon kvctx:t 1
check "a key that no process can read" kvctxctl tenant add t secret --key kvctx:t
check "is used" prints used state
check "the same key is not looked for elsewhere" fails 'exists already' kvctxctl tenant add t secret --key kvctx:t
# what moves pages; the others do so natively, as such a tenant too (contract)
for test in data replace cancel slots; do
	secret program $test
done
check "detach" until_true 20 kvctxctl pool detach t

check "a pool of small segments" make_pool "$dev" --segment-size 4M
check "and such a tenant" kvctxctl tenant add t secret --key kvctx:t
check "pages of the tenant" prints 'stored=20 ' secret pages store 0 20 50000
check "and of one without a key" prints 'stored=20 ' pages store 100 20 50000
check "flush" prints flushed secret pages flush
check "nobody finds on the device what is encrypted" prints 'found=0' pages find "$dev" 3
check "as what is not" prints 'found=1' pages find "$dev" 103
check "right" prints 'right=20 ' secret pages load 0 20 50000

check "detach" until_true 20 kvctxctl pool detach t
mkdir /tmp/encrypted
ln -s "$dev" /tmp/encrypted/member0
check "a process cannot have that key" fails 'key not available' in_process pages load 0 1 50000
# the record of page 4 says where it is
key=$(printf '%s' 'pages of the test scripts' | od -An -v -tx1 | tr -d ' \n')$(printf '%014d' 0)0400000000000000
place=$(kvctxctl dump "$dev" page "$key" -o json | tr -d ' \n' | grep -oE '"nonce":.*"offset":[0-9]+' | grep -oE '[0-9]+$')
byte=$(dd if="$dev" bs=1 skip=$((place + 5000)) count=1 status=none | od -An -tu1 | tr -d ' ')
check "a byte of it changes on the device" bash -c "printf '\\x%02x' $((byte ^ 1)) | dd of=$dev bs=1 seek=$((place + 5000)) conv=notrunc,fsync status=none"
check "attach" kvctxctl pool attach "$dev"
check "it is found damaged, and nothing else" prints 'right=19 wrong=0 bad=1 ' secret pages load 0 20 50000
check "and stored again" prints 'stored=1 ' secret pages store 4 1 50000
check "detach" until_true 20 kvctxctl pool detach t
keys drop logon kvctx:t
keys add user kvctx:t 1
check "with one of type user it finds the pages" prints 'right=20 ' in_process pages load 0 20 50000
check "and stores others" prints 'stored=20 ' in_process pages store 50 20 70001
keys add user kvctx:t 2
check "attach with another key" kvctxctl pool attach "$dev"
check "which is not taken for it" prints missing state
check "and the tenant is not opened" fails 'key not available' secret pages load 0 1 50000
check "others are" prints 'right=20 ' pages load 100 20 50000
check "it is not unlocked with it" fails 'is not the one that' kvctxctl tenant set t secret --unlock
check "nor one that needs none" fails 'are not encrypted' kvctxctl tenant set t default --unlock
keys add user kvctx:t 1
check "it is with its own" kvctxctl tenant set t secret --unlock
check "used" prints used state
check "the module finds what a process has stored" prints 'right=20 ' secret pages load 50 20 70001
KVCTX_NODE=$node pages hang > /tmp/hang.out 2>&1 &
sleep 1
keys revoke user kvctx:t
check "the key is revoked under load" prints ended state
check "nothing is loaded any more" fails 'key not available' secret pages load 50 1 70001
kill -9 $!
wait $! 2> /dev/null
check "its sessions end" until_true 20 bash -c 'kvctxctl stat t -o json | tr -d " \n" | grep -q "\"sessions\":0"'
check "another time it is unlocked" bash -c 'keys add user kvctx:t 1 && kvctxctl tenant set t secret --unlock'
check "and found" prints 'right=20 ' secret pages load 50 20 70001
keys expire user kvctx:t
check "expired" prints ended state
check "it is removed without its key" until_true 20 kvctxctl tenant remove t secret
check "detach at last" until_true 20 kvctxctl pool detach t
check "unload" until_true 60 kvctxctl unload
"$here/slow.sh" remove
nvmet_teardown
finish
