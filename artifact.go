package muster

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Artifact is a named file of an attempt, addressed by its SHA-256.
type Artifact struct {
	Name   string `json:"name"` // see CheckArtifactName
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`        // 64 lower-case hex digits
	CID    string `json:"cid,omitempty"` // IPFS content identifier (Qm…), if the task's result refers to it
	URL    string `json:"url,omitempty"`
}

const (
	tasksPath    = "/api/v1/tasks/"
	artifactsDir = "/artifacts/"
)

// ArtifactPath returns the path of an artifact of a task on the server, escaped for a URL.
func ArtifactPath(task TaskID, name string) string {
	var b strings.Builder
	b.WriteString(tasksPath + task.String() + artifactsDir)
	for _, c := range []byte(name) {
		if strings.IndexByte("-._~/", c) >= 0 || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// ParseArtifactPath is the inverse of ArtifactPath for a path that is not escaped.
func ParseArtifactPath(path string) (task TaskID, name string, ok bool) {
	rest, ok := strings.CutPrefix(path, tasksPath)
	if !ok {
		return TaskID{}, "", false
	}
	id, name, ok := strings.Cut(rest, artifactsDir)
	if !ok || name == "" {
		return TaskID{}, "", false
	}
	task, err := ParseTaskID(id)
	return task, name, err == nil
}

// The most bytes of the name of an artifact, and of each element of it.
const (
	MaxArtifactName    = 1024
	maxArtifactElement = 255 // of a file name on most systems
)

// CheckArtifactName returns why name cannot be that of an artifact, or nil. The error follows the name in a sentence. A name is a
// slash-separated path below a directory in its shortest form, which leads out of the directory on no system and has no characters
// that steer a terminal or are invisible. Names that only some systems refuse, such as NUL on Windows, are valid.
func CheckArtifactName(name string) error {
	switch {
	case !fs.ValidPath(name) && utf8.ValidString(name) || name == ".":
		return errors.New("is not a relative path without . and .. elements")
	case len(name) > MaxArtifactName:
		return fmt.Errorf("has more than %d bytes", MaxArtifactName)
	case !utf8.ValidString(name):
		return errors.New("is not UTF-8")
	case strings.Contains(name, `\`):
		return errors.New("has a backslash, which separates directories on Windows")
	}
	for _, r := range name {
		if isUnsafe(r) {
			return fmt.Errorf("has the control or format character %U", r)
		}
	}
	for element := range strings.SplitSeq(name, "/") {
		switch {
		case len(element) > maxArtifactElement:
			return fmt.Errorf("has an element of more than %d bytes", maxArtifactElement)
		case len(element) > 1 && element[1] == ':' && isLetter(element[0]):
			return fmt.Errorf("has the element %q, which begins with a drive letter of Windows", element)
		}
	}
	return nil
}

// isUnsafe reports whether r is a control, format, or line separator character. Two joiners are not: emoji and some scripts need them.
func isUnsafe(r rune) bool {
	const zeroWidthNonJoiner, zeroWidthJoiner = '\u200c', '\u200d'
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) && r != zeroWidthNonJoiner && r != zeroWidthJoiner
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// ConflictingPaths returns the indices, in ascending order, of the slash-separated paths that cannot be files of one directory together with
// one before them: equal ones, and those of which one is below the other.
func ConflictingPaths(paths []string) []int {
	order := make([]int, len(paths)) // a file is followed by the paths below it
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return comparePaths(paths[i], paths[j]) })
	var conflicting []int
	var above []int // different paths above the current one, or equal to it
	for _, i := range order {
		for len(above) > 0 && !isAtOrBelow(paths[i], paths[above[len(above)-1]]) {
			above = above[:len(above)-1]
		}
		for _, j := range above {
			conflicting = append(conflicting, max(i, j))
		}
		if n := len(above); n > 0 && paths[i] == paths[above[n-1]] {
			above[n-1] = min(i, above[n-1])
		} else {
			above = append(above, i)
		}
	}
	slices.Sort(conflicting)
	return slices.Compact(conflicting)
}

func isAtOrBelow(name, file string) bool {
	rest, ok := strings.CutPrefix(name, file)
	return ok && (rest == "" || rest[0] == '/')
}

// comparePaths sorts the separator before all other characters.
func comparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		if x, y := a[i], b[i]; x != y {
			switch {
			case x == '/':
				return -1
			case y == '/':
				return 1
			}
			return cmp.Compare(x, y)
		}
	}
	return cmp.Compare(len(a), len(b))
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
