// Package cid computes the IPFS content identifier of a file, as `ipfs add` of Kubo does by default.
//
// A file is split into chunks of 256 KiB. Each is a leaf: a UnixFS file in a dag-pb node. A file of one chunk is its leaf; otherwise
// each node has up to 174 children, and all leaves have the same depth. The identifier (CIDv0) is the
// SHA-256 of the root, in base 58: Qm and 44 more characters. Other chunk sizes or widths would give other identifiers, so these
// numbers make ours equal to Kubo's.
//
// Sources: the specifications of UnixFS and dag-pb (specs.ipfs.tech, ipld.io), and boxo's importer/balanced.
package cid

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"

	"github.com/muster-dev/muster"
)

const (
	chunk = 256 << 10 // bytes of a leaf
	width = 174       // children of a node
)

// Scheme is the prefix of a URL of a file by its identifier.
const Scheme = "ipfs://"

// Sum returns the CIDv0 of the data that r returns until io.EOF. It needs memory for one chunk and up to 174 nodes for each level of the tree: less
// than 400 KiB for a file of terabytes.
func Sum(r io.Reader) (string, error) { return sum(r, chunk, width) }

func sum(r io.Reader, chunk, width int) (string, error) {
	t := tree{width: width}
	buf := make([]byte, chunk)
	for first := true; ; first = false {
		n, err := io.ReadFull(r, buf)
		if n > 0 || first && err == io.EOF { // an empty file is one empty leaf
			t.add(0, leaf(buf[:n]))
		}
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF:
			return t.root().String(), nil
		case err != nil:
			return "", err
		}
	}
}

// Canonical converts a CIDv0, or a CIDv1 of the same node (bafybei…), to a CIDv0. Others are Invalid errors, because no artifact can have them.
func Canonical(text string) (string, error) {
	hash, ofNode, err := parse(text)
	if err != nil {
		return "", muster.Errorf(muster.Invalid, "%.100q is not a content identifier: it must begin with Qm or bafybei", text)
	}
	if !ofNode {
		return "", muster.Errorf(muster.Invalid, "%.100q is not the identifier of a file in Muster: it must be of a dag-pb node with a SHA-256, and begin with Qm or bafybei", text)
	}
	return base58.encode(hash), nil
}

// sha2 is the multihash code of SHA-256.
const sha2 = 0x12

// node has the fields of a node that its parent needs.
type node struct {
	hash       [sha256.Size]byte
	fileBytes  uint64 // bytes of the file in its subtree
	totalBytes uint64 // bytes of all nodes in its subtree
}

// String returns the CIDv0.
func (n *node) String() string {
	return base58.encode(n.multihash())
}

func (n *node) multihash() []byte { return append([]byte{sha2, sha256.Size}, n.hash[:]...) }

// tree is built from its leaves: levels[0] has the leaves without a parent.
type tree struct {
	width  int
	levels [][]node
}

// add adds a node to a level. A full level becomes one node of the next level only when another node follows, so that the root never has a single child.
func (t *tree) add(level int, n node) {
	if level == len(t.levels) {
		t.levels = append(t.levels, make([]node, 0, t.width))
	}
	if len(t.levels[level]) == t.width {
		t.flush(level)
	}
	t.levels[level] = append(t.levels[level], n)
}

func (t *tree) flush(level int) {
	n := parent(t.levels[level])
	t.levels[level] = t.levels[level][:0]
	t.add(level+1, n)
}

func (t *tree) root() *node {
	for level := 0; ; level++ {
		top := level == len(t.levels)-1
		if top && len(t.levels[level]) == 1 {
			return &t.levels[level][0]
		}
		if len(t.levels[level]) > 0 {
			t.flush(level)
		}
	}
}

// Tags of the message fields: field number and wire type of Protocol Buffers.
const (
	nodeData   = 1<<3 | 2 // of dag-pb's PBNode
	nodeLinks  = 2<<3 | 2
	linkHash   = 1<<3 | 2 // of its PBLink
	linkName   = 2<<3 | 2
	linkSize   = 3 << 3
	fileType   = 1 << 3 // of UnixFS' Data
	fileData   = 2<<3 | 2
	fileSize   = 3 << 3
	blockSizes = 4 << 3

	typeFile = 2
)

// leaf returns the node of a chunk.
func leaf(data []byte) node {
	n := uint64(len(data))
	before := []byte{fileType, typeFile}
	if n > 0 {
		before = append(before, fileData)
		before = binary.AppendUvarint(before, n)
	}
	after := binary.AppendUvarint([]byte{fileSize}, n)
	head := binary.AppendUvarint([]byte{nodeData}, uint64(len(before)+len(after))+n)
	h := sha256.New()
	for _, part := range [][]byte{head, before, data, after} {
		_, _ = h.Write(part) // never fails
	}
	l := node{fileBytes: n, totalBytes: uint64(len(head)+len(before)+len(after)) + n}
	h.Sum(l.hash[:0])
	return l
}

// parent returns the node above children.
func parent(children []node) node {
	var p node
	var block, link []byte
	for i := range children {
		c := &children[i]
		p.fileBytes += c.fileBytes
		p.totalBytes += c.totalBytes
		link = append(link[:0], linkHash, 2+sha256.Size)
		link = append(link, c.multihash()...)
		link = append(link, linkName, 0)
		link = append(link, linkSize)
		link = binary.AppendUvarint(link, c.totalBytes)
		block = append(block, nodeLinks)
		block = binary.AppendUvarint(block, uint64(len(link)))
		block = append(block, link...)
	}
	data := binary.AppendUvarint([]byte{fileType, typeFile, fileSize}, p.fileBytes)
	for i := range children {
		data = append(data, blockSizes)
		data = binary.AppendUvarint(data, children[i].fileBytes)
	}
	block = append(block, nodeData) // after the links, although its number is lower: all implementations of IPFS do this
	block = binary.AppendUvarint(block, uint64(len(data)))
	block = append(block, data...)
	p.totalBytes += uint64(len(block))
	p.hash = sha256.Sum256(block)
	return p
}
