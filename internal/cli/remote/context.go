package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/muster-dev/muster"
)

// SavedContext is what up and server leave behind, so that the next command on this
// machine needs no options: where the servers are and the tokens for them. The
// file is for its owner only.
type SavedContext struct {
	Current string   `json:"current,omitempty"` // URL of the server that is meant if none is named
	Servers []Server `json:"servers"`           // the latest first, at most maxServers
}

// Server is what is known of one server.
type Server struct {
	URL       string `json:"url"`
	Token     string `json:"token,omitempty"`
	JoinToken string `json:"join_token,omitempty"`
	Data      string `json:"data,omitempty"` // its data folder, if it runs on this machine
}

const maxServers = 20

// ContextPath is $MUSTER_CONFIG, or muster/context.json in the user's folder for
// configuration.
func ContextPath() (string, error) {
	if p := os.Getenv("MUSTER_CONFIG"); p != "" {
		return p, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", muster.Errorf(muster.Invalid, "there is no place for the saved context: %w; set MUSTER_CONFIG to a file", err)
	}
	return filepath.Join(dir, "muster", "context.json"), nil
}

// LoadContext returns what is saved, and nothing if there is no file.
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
		return SavedContext{}, muster.Errorf(muster.Invalid, "the saved context cannot be read: %w", err)
	}
	var s SavedContext
	if err := json.Unmarshal(data, &s); err != nil {
		return SavedContext{}, muster.Errorf(muster.Invalid, "the saved context %s is damaged (%w): delete it, and name the server with --server and --token-file", path, err)
	}
	return s, nil
}

// Save replaces the file as a whole.
func (s *SavedContext) Save() error {
	path, err := ContextPath()
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode context: %w", err)
	}
	if err := replaceFile(path, append(data, '\n')); err != nil {
		return muster.Errorf(muster.Invalid, "the context cannot be saved: %w; set MUSTER_CONFIG to another file", err)
	}
	return nil
}

func replaceFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".context-*") // made with mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// SetCurrent makes server the current one. Tokens that it lacks are taken over from what
// was saved for the same data folder: a server says them only once.
func (s *SavedContext) SetCurrent(server Server) Server {
	for _, old := range s.Servers {
		if old.Data != server.Data || server.Data == "" {
			continue
		}
		if server.Token == "" {
			server.Token = old.Token
		}
		if server.JoinToken == "" {
			server.JoinToken = old.JoinToken
		}
	}
	s.Servers = slices.DeleteFunc(s.Servers, func(old Server) bool {
		return old.URL == server.URL || old.Data == server.Data && server.Data != ""
	})
	s.Servers = slices.Insert(s.Servers, 0, server)
	s.Servers = s.Servers[:min(len(s.Servers), maxServers)]
	s.Current = server.URL
	return server
}

// Lookup returns what is known of the server at url, or of the current one if
// url is "".
func (s *SavedContext) Lookup(url string) Server {
	if url == "" {
		url = s.Current
	}
	for _, target := range s.Servers {
		if target.URL == url {
			return target
		}
	}
	return Server{URL: url}
}
