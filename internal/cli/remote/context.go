package remote

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
)

// SavedContext is what up and server save, so that later commands on this machine need no options:
// the URLs of servers and tokens for them. Only its owner can read the file.
type SavedContext struct {
	Current string   `json:"current,omitempty"` // URL of the default server
	Servers []Server `json:"servers"`           // the latest first, at most maxServers
}

// Server is one server in the context.
type Server struct {
	URL       string `json:"url"`
	Token     string `json:"token,omitempty"`
	JoinToken string `json:"join_token,omitempty"`
	Data      string `json:"data,omitempty"` // its data directory, if it runs on this machine
}

const maxServers = 20

// ContextPath returns $MUSTER_CONFIG, or muster/context.json in the user's configuration directory.
func ContextPath() (string, error) {
	if p := os.Getenv("MUSTER_CONFIG"); p != "" {
		return p, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", muster.Errorf(muster.Invalid, "no directory for the saved context: %w; set MUSTER_CONFIG to a file", err)
	}
	return filepath.Join(dir, "muster", "context.json"), nil
}

// LoadContext reads the context. It is empty if there is no file.
func LoadContext() (SavedContext, error) {
	path, err := ContextPath()
	if err != nil {
		return SavedContext{}, err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return SavedContext{}, nil
	}
	if err != nil {
		return SavedContext{}, muster.Errorf(muster.Invalid, "cannot read the saved context: %w", err)
	}
	var s SavedContext
	if err := json.Unmarshal(data, &s); err != nil {
		return SavedContext{}, muster.Errorf(muster.Invalid, "the saved context %s is damaged (%w): delete it and use --server and --token-file", path, err)
	}
	return s, nil
}

// Save replaces the file atomically.
func (s *SavedContext) Save() error {
	path, err := ContextPath()
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode context: %w", err)
	}
	err = os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = atomicfile.Write(path, append(data, '\n'), 0o600)
	}
	if err != nil {
		return muster.Errorf(muster.Invalid, "cannot save the context: %w; set MUSTER_CONFIG to another file", err)
	}
	return nil
}

// SetCurrent makes server the default. Missing tokens are copied from the entry with the same data
// directory: a server prints them only once.
func (s *SavedContext) SetCurrent(server Server) Server {
	for _, old := range s.Servers {
		if old.Data != server.Data || server.Data == "" {
			continue
		}
		server.Token = cmp.Or(server.Token, old.Token)
		server.JoinToken = cmp.Or(server.JoinToken, old.JoinToken)
	}
	s.Servers = slices.DeleteFunc(s.Servers, func(old Server) bool {
		return old.URL == server.URL || old.Data == server.Data && server.Data != ""
	})
	s.Servers = slices.Insert(s.Servers, 0, server)
	s.Servers = s.Servers[:min(len(s.Servers), maxServers)]
	s.Current = server.URL
	return server
}

// Lookup returns the server at url, by default the current one.
func (s *SavedContext) Lookup(url string) Server {
	url = cmp.Or(url, s.Current)
	for _, target := range s.Servers {
		if target.URL == url {
			return target
		}
	}
	return Server{URL: url}
}
