package webhook

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
)

// loadKey reads the server's key from its file, or creates it at the first start. The key is not in the database, so that URLs and
// secrets of webhooks cannot be read from a copy of the database.
func loadKey(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key := make([]byte, keySize)
		_, _ = rand.Read(key) // never fails
		if err := atomicfile.Write(path, []byte(hex.EncodeToString(key)+"\n"), 0o600); err != nil {
			return nil, fmt.Errorf("write the webhook key: %w", err)
		}
		return key, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the webhook key: %w", err)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != keySize {
		return nil, muster.Errorf(muster.Invalid, "the file %s is not a webhook key: restore it from a backup, or delete it and set the webhooks of all projects again", path)
	}
	return key, nil
}
