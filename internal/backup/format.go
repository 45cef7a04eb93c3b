package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
)

// formatVersion is raised by changes that older programs cannot restore.
const formatVersion = 1

// The names of the entries that a stream adds to the files of the data directory.
const (
	headName = "muster-backup.json"
	endName  = "end.json"
)

// DatabaseName is the database in the data directory.
const DatabaseName = "muster.db"

// Head describes a backup.
type Head struct {
	Format    int          `json:"format"`
	Version   string       `json:"version"` // of the server's program
	CreatedAt muster.Time  `json:"created_at"`
	Database  string       `json:"database"` // its id
	Schema    int64        `json:"schema"`
	NextJob   muster.JobID `json:"next_job"`
}

// end is the last entry.
type end struct {
	Files   int64    `json:"files"`
	Bytes   int64    `json:"bytes"`
	SHA256  string   `json:"sha256"` // see digest
	Damaged []string `json:"damaged,omitempty"`
}

// Summary is what a backup has.
type Summary struct {
	Head

	Files int64 `json:"files"` // without the two that describe the backup
	Bytes int64 `json:"bytes"` // of these files
	// Damaged names files that could not be read to their end, and blobs whose content does not match their name. They are in the
	// stream, but are not restored.
	Damaged []string `json:"damaged,omitempty"`
}

// digest hashes the names, sizes and contents of entries.
type digest struct {
	hash.Hash

	files, bytes int64
}

func newDigest() *digest { return &digest{Hash: sha256.New()} }

func (d *digest) entry(name string, size int64) {
	fmt.Fprintf(d, "%d %s %d\n", len(name), name, size)
	d.files++
	d.bytes += size
}

func (d *digest) end(damaged []string) end {
	return end{Files: d.files, Bytes: d.bytes, SHA256: hex.EncodeToString(d.Sum(nil)), Damaged: damaged}
}

// The directories of the data directory that are backed up, with what is left out: files that are made again, and the state of
// attempts that run on workers of gateways, which a restored server runs again.
var directories = []struct {
	name string
	skip func(name string) bool // by the name relative to the directory, of a file or a directory
}{
	{"local", never},
	{"dialects", func(name string) bool {
		parts := strings.Split(name, "/") // such as dtf/fleet/cache
		switch {
		case len(parts) == 3 && parts[1] == "fleet":
			return parts[2] != "fleet.db"
		case len(parts) == 2 && parts[0] == "trainforge":
			return parts[1] == "uploads"
		}
		return false
	}},
	{"logs", func(name string) bool { return name == "removed" || strings.HasSuffix(name, ".idx") }},
	{"tls/acme", never}, // the account, and certificates that are limited in number
	{"blobs", func(name string) bool { return name == "partial" || name == "damaged" || name == "removed" }},
}

func never(string) bool { return false }

// files are the single files that are backed up.
var files = []string{"webhook.key", "secrets.key", "server.key", "history", "tls/ca.key", "tls/ca.crt"}

// known reports whether an entry of a stream may be restored.
func known(name string) bool {
	if !fs.ValidPath(name) || strings.Contains(name, `\`) || name != path.Clean(name) {
		return false
	}
	if name == DatabaseName {
		return true
	}
	if slices.Contains(files, name) {
		return true
	}
	for _, d := range directories {
		if strings.HasPrefix(name, d.name+"/") {
			return true
		}
	}
	return false
}

// blobSum returns the hash in the name of a blob's file, such as blobs/ab/cd/abcd….
func blobSum(name string) (sum string, ok bool) {
	if !strings.HasPrefix(name, "blobs/") {
		return "", false
	}
	sum = path.Base(name)
	_, err := hex.DecodeString(sum)
	return sum, err == nil && len(sum) == 2*sha256.Size
}

// jobOfLog returns the job of a file or directory below logs, such as 17k/17042/0/3.1.log or 17042.
func jobOfLog(name string) (muster.JobID, bool) {
	first, rest, _ := strings.Cut(name, "/")
	if bucket, ok := strings.CutSuffix(first, "k"); ok && bucket != "" {
		first, _, _ = strings.Cut(rest, "/")
	}
	n, err := strconv.ParseInt(first, 10, 64)
	return muster.JobID(n), err == nil
}
