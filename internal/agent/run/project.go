package run

import (
	"crypto/sha256"
	"encoding/hex"
)

// ProjectFolder returns the name of the folder that has what the tasks of a project share on a worker. It is a hash, because the name of a
// project comes from the server.
func ProjectFolder(project string) string {
	sum := sha256.Sum256([]byte(project))
	return hex.EncodeToString(sum[:16])
}
