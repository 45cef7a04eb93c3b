package muster

// Artifact is a named file of an attempt, addressed by its content.
type Artifact struct {
	Name   string `json:"name"` // slash-separated, relative, without ".."
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`        // 64 lower-case hex digits
	CID    string `json:"cid,omitempty"` // of IPFS (Qm…), if its task's result refers to it
	URL    string `json:"url,omitempty"`
}

// File is one entry of a Tree.
type File struct {
	Path   string `json:"path"` // slash-separated, relative, without ".."
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"` // empty for a link
	Exec   bool   `json:"exec,omitempty"`
	Link   string `json:"link,omitempty"` // target of a symbolic link that stays inside the tree
}

// Tree is a folder that travels with a job: its JSON form is stored as a blob
// whose hash stands in the spec's files field as "sha256:…". Entries are sorted
// by path, so that equal folders have equal hashes.
type Tree struct {
	Files []File `json:"files"`
}
