// Package cid computes the content identifier that IPFS gives a file: what `ipfs add` of Kubo prints by default.
//
// A file is cut into chunks of 256 KiB. Each is a leaf: a UnixFS file in a dag-pb node. A file of one chunk is its leaf; otherwise up to
// 174 nodes are the children of one above them, and so on until there is one, with all leaves at the same depth. The identifier (CIDv0) is the
// SHA-256 of the topmost node, in base 58: Qm and 44 more characters. Two programs that cut or pack otherwise give the same
// file other identifiers, so these numbers are what makes ours those of others.
//
// Sources: the specifications of UnixFS and dag-pb (specs.ipfs.tech, ipld.io), and boxo's importer/balanced.
package cid
