package webhook

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/muster-dev/muster"
)

// loadKey reads the server's key from its file, or makes it at the first start. It is not in the database, so that a copy of that, such as a
// backup, has neither URLs nor secrets of webhooks that can be read.
func loadKey(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the key of webhooks: %w", err)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != keySize {
		return nil, muster.Errorf(muster.Invalid, "the file %s has no key of webhooks: restore it from a backup, or delete it and set the webhooks of all projects again", path)
	}
	return key, nil
}

// makeKey writes a new key so that the file is whole, or not there, whenever the server is killed.
func makeKey(path string) (key []byte, err error) {
	key = make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	f, err := os.CreateTemp(filepath.Dir(path), ".webhook-key-*")
	if err != nil {
		return nil, fmt.Errorf("write the key of webhooks: %w", err)
	}
	_, err = f.WriteString(hex.EncodeToString(key) + "\n") // the file's mode is 0600
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error before counts
		return nil, fmt.Errorf("write the key of webhooks: %w", err)
	}
	return key, nil
}
