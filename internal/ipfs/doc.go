// Package kubo gives an IPFS node the files that results refer to as ipfs://…, so that they are found there too. The node is a Kubo or speaks its RPC
// interface (docs.ipfs.tech/reference/kubo/rpc).
//
// What is still to be given is known to the store, so that it goes on after a restart of either side. A node that is away, slow or full
// holds nothing else up.
package ipfs
