package muster

import "strings"

// Artifact is a named file of an attempt, addressed by its SHA-256.
type Artifact struct {
	Name   string `json:"name"` // slash-separated, relative, without ".."
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`        // 64 lower-case hex digits
	CID    string `json:"cid,omitempty"` // IPFS content identifier (Qm…), if the task's result refers to it
	URL    string `json:"url,omitempty"`
}

// IsSHA256 reports whether s is 64 lower-case hex digits.
func IsSHA256(s string) bool { return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" }

// InputFile is an artifact of an earlier stage that must be in a task's folder before the task starts.
type InputFile struct {
	Path   string `json:"path"` // in the folder: slash-separated, relative, without ".."
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// Membership is the place of a task in its gang. The rank equals the element.
type Membership struct {
	Rank   int    `json:"rank"`
	Size   int    `json:"size"`
	Master string `json:"master"` // host name or address of the worker of rank 0
	Port   int    `json:"port"`   // on which the master listens
}

// File is one entry of a Tree.
type File struct {
	Path   string `json:"path"` // slash-separated, relative, without ".."
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"` // empty for a link
	Exec   bool   `json:"exec,omitempty"`
	Link   string `json:"link,omitempty"` // target of a symbolic link that stays inside the tree
}

// Tree is a folder uploaded with a job. Its JSON form is stored as a blob; the
// spec's files field is "sha256:…" with the blob's hash. Entries are sorted by
// path, so that equal folders have equal hashes.
type Tree struct {
	Files []File `json:"files"`
}
