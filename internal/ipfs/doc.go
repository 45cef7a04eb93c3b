// Package ipfs pins the files that results refer to as ipfs://… on an IPFS node. The node is Kubo or implements its RPC
// API (docs.ipfs.tech/reference/kubo/rpc).
//
// The store records which files are not pinned yet, so pinning continues after a restart of either side. An unreachable, slow or full node
// does not block other work.
package ipfs
