// Package cid computes the IPFS content identifier of a file, as `ipfs add` of Kubo does by default.
//
// A file is split into chunks of 256 KiB. Each is a leaf: a UnixFS file in a dag-pb node. A file of one chunk is its leaf; otherwise
// each node has up to 174 children, and all leaves have the same depth. The identifier (CIDv0) is the
// SHA-256 of the root, in base 58: Qm and 44 more characters. Other chunk sizes or widths would give other identifiers, so these
// numbers make ours equal to Kubo's.
//
// Sources: the specifications of UnixFS and dag-pb (specs.ipfs.tech, ipld.io), and boxo's importer/balanced.
package cid
