package remote

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
	"github.com/muster-dev/muster/internal/auth"
)

// SavedContext are the servers that up, server and login save, so that later commands need no options: URLs and tokens. Only its
// owner can read the file. Of two processes that change it at the same time, one may overwrite the other's change.
type SavedContext struct {
	Current string   `json:"current,omitempty"` // URL of the default server
	Chosen  bool     `json:"chosen,omitempty"`  // the user chose Current with login or context use: up and server do not replace it
	Servers []Server `json:"servers"`           // the latest first
}

// Server is one server in the context.
type Server struct {
	Name      string `json:"name,omitempty"` // unique in the context
	URL       string `json:"url"`
	Token     string `json:"token,omitempty"`      // without a fingerprint
	JoinToken string `json:"join_token,omitempty"` // the same
	Data      string `json:"data,omitempty"`       // its data directory, if it runs on this machine
	// CA is the fingerprint of the server's certificate authority: only it is trusted. "" means those of the system.
	CA            string `json:"ca,omitempty"`
	TLSServerName string `json:"tls_server_name,omitempty"` // that its certificate must have; "" means the host of URL
	// The files of the certificate that commands present, and of its key; absolute paths.
	ClientCert string `json:"client_cert,omitempty"`
	ClientKey  string `json:"client_key,omitempty"`
}

// SetToken sets the API key, and the authority that it names. If it names one and the user gave no scheme then the URL becomes one of https.
func (s *Server) SetToken(token string, schemeGiven bool) {
	var pin string
	s.Token, pin = auth.SplitToken(token)
	if pin == "" {
		return
	}
	s.CA = pin
	if !schemeGiven {
		s.URL = withTLS(s.URL)
	}
}

// maxServers is the maximum number of saved servers, beside those of login.
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
	for i := range s.Servers {
		s.Servers[i].Name = cmp.Or(s.Servers[i].Name, s.freeName(s.Servers[i].URL))
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

// Record saves a server that runs on this machine, and makes it the current one unless another server was chosen or answers.
// Missing tokens are copied from the entry with the same data directory: a server prints them only once. It returns the saved entry,
// and whether it is the current one.
func (s *SavedContext) Record(server Server, answers func(url string) bool) (saved Server, current bool) {
	server.Token, _ = auth.SplitToken(server.Token)
	server.JoinToken, _ = auth.SplitToken(server.JoinToken)
	current = s.Current == "" || s.Current == server.URL
	for _, old := range s.Servers {
		login := old.Data == "" && old.URL == server.URL
		if !login && (old.Data != server.Data || server.Data == "") {
			continue
		}
		if old.Name != defaultName(old.URL) {
			server.Name = old.Name
		}
		server.Token = cmp.Or(server.Token, old.Token)
		server.JoinToken = cmp.Or(server.JoinToken, old.JoinToken)
		if server.ClientCert == "" {
			server.ClientCert, server.ClientKey = old.ClientCert, old.ClientKey
		}
		current = current || s.Current == old.URL
	}
	s.Servers = slices.DeleteFunc(s.Servers, func(old Server) bool {
		return old.URL == server.URL || old.Data == server.Data && server.Data != ""
	})
	if !current && !s.Chosen && !answers(s.Current) {
		current = true
	}
	if current {
		s.Current = server.URL
	}
	return s.add(server), current
}

// Login saves a server, in the place of an entry with its URL, and makes it the current one. It fails if another server has its name.
func (s *SavedContext) Login(server Server) (Server, error) {
	i := slices.IndexFunc(s.Servers, func(old Server) bool { return old.Name == server.Name && server.Name != "" })
	if i >= 0 && s.Servers[i].URL != server.URL {
		return Server{}, muster.Errorf(muster.Conflict, "context %s is another server (%s): choose another --name, or delete it with muster context delete %s", server.Name, s.Servers[i].URL, server.Name)
	}
	if i := slices.IndexFunc(s.Servers, func(old Server) bool { return old.URL == server.URL }); i >= 0 {
		old := s.Servers[i]
		server.Name, server.JoinToken, server.Data = cmp.Or(server.Name, old.Name), old.JoinToken, old.Data
		s.Servers = slices.Delete(s.Servers, i, i+1)
	}
	s.Current, s.Chosen = server.URL, true
	return s.add(server), nil
}

// add inserts a server, with a name if it has none, and removes the oldest servers of this machine beyond maxServers.
func (s *SavedContext) add(server Server) Server {
	server.Name = cmp.Or(server.Name, s.freeName(server.URL))
	s.Servers = slices.Insert(s.Servers, 0, server)
	local := 0
	s.Servers = slices.DeleteFunc(s.Servers, func(old Server) bool {
		if old.Data == "" {
			return false
		}
		local++
		return local > maxServers && old.URL != s.Current
	})
	return server
}

// Use makes a saved server the current one.
func (s *SavedContext) Use(nameOrURL string) (Server, error) {
	server, err := s.saved(nameOrURL)
	if err != nil {
		return Server{}, err
	}
	s.Current, s.Chosen = server.URL, true
	return server, nil
}

// Delete removes a saved server. If it is the current one, there is none afterwards.
func (s *SavedContext) Delete(nameOrURL string) (Server, error) {
	server, err := s.saved(nameOrURL)
	if err != nil {
		return Server{}, err
	}
	s.Servers = slices.DeleteFunc(s.Servers, func(old Server) bool { return old.URL == server.URL })
	if s.Current == server.URL {
		s.Current, s.Chosen = "", false
	}
	return server, nil
}

func (s *SavedContext) saved(nameOrURL string) (Server, error) {
	server, ok := s.Find(nameOrURL)
	if !ok {
		return Server{}, muster.Errorf(muster.NotFound, "there is no context %q: muster context list shows the saved servers, muster login URL saves another one", nameOrURL)
	}
	return server, nil
}

// Find returns the saved server with this name, or else with this URL in any form that ParseURL accepts; without a scheme also that of https.
func (s *SavedContext) Find(nameOrURL string) (Server, bool) {
	i := slices.IndexFunc(s.Servers, func(server Server) bool { return server.Name == nameOrURL })
	if i < 0 {
		address, err := ParseURL(nameOrURL)
		if err != nil {
			return Server{}, false
		}
		i = slices.IndexFunc(s.Servers, func(server Server) bool { return server.URL == address })
		if i < 0 && !strings.Contains(nameOrURL, "://") {
			i = slices.IndexFunc(s.Servers, func(server Server) bool { return server.URL == withTLS(address) })
		}
	}
	if i < 0 {
		return Server{}, false
	}
	return s.Servers[i], true
}

// LookupFor is Lookup for a token, which the user gave, of the server: if it ends in a fingerprint then the server uses TLS, also if
// nameOrURL has no scheme. A token of another server than the saved one is an error.
func (s *SavedContext) LookupFor(nameOrURL, token string) (Server, error) {
	target, err := s.Lookup(nameOrURL)
	_, pin := auth.SplitToken(token)
	if err != nil || pin == "" {
		return target, err
	}
	if target.URL == "" {
		target.URL = DefaultServer
	}
	if target.CA != "" && target.CA != pin {
		return Server{}, muster.Errorf(muster.Invalid, "the token is of another server than %s, which was saved: muster login %s replaces that", target.Name, target.URL)
	}
	target.CA = pin
	if !strings.Contains(nameOrURL, "://") {
		target.URL = withTLS(target.URL)
	}
	return target, nil
}

// withTLS returns the https URL for one of http.
func withTLS(address string) string { return strings.Replace(address, "http://", "https://", 1) }

// Lookup returns the server with a name or URL; a URL that is not saved has no tokens. For "" it returns the current server, or one
// without URL if none is saved.
func (s *SavedContext) Lookup(nameOrURL string) (Server, error) {
	if nameOrURL == "" {
		if s.Current == "" && len(s.Servers) > 0 {
			return Server{}, muster.Errorf(muster.Invalid, "no context is selected: use muster context use NAME, or --server; muster context list shows the saved servers")
		}
		if s.Current == "" {
			return Server{}, nil
		}
		nameOrURL = s.Current
	}
	if server, ok := s.Find(nameOrURL); ok {
		return server, nil
	}
	address, err := ParseURL(nameOrURL)
	return Server{URL: address}, err
}

// freeName returns a name for a new entry with this URL: the default one, or the URL if that is taken.
func (s *SavedContext) freeName(address string) string {
	name := defaultName(address)
	if slices.ContainsFunc(s.Servers, func(old Server) bool { return old.Name == name }) {
		return address
	}
	return name
}

// defaultName returns the host of a URL, with the port unless it is the default one.
func defaultName(address string) string {
	name := strings.TrimPrefix(strings.TrimPrefix(address, "http://"), "https://")
	return strings.TrimSuffix(name, ":"+defaultPort)
}

// CheckName checks a name that a user gives to a context.
func CheckName(name string) error {
	valid := func(r rune) bool { return r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) }
	invalid := func(r rune) bool { return !valid(r) && !strings.ContainsRune("-._:", r) }
	if name == "" || len(name) > 100 || strings.ContainsFunc(name, invalid) || !valid(rune(name[0])) {
		return muster.Errorf(muster.Invalid, "%q cannot be the name of a context: use 1 to 100 letters, digits, dots, hyphens, colons and underscores, beginning with a letter or digit", name)
	}
	return nil
}

const defaultPort = "8700"

// ParseURL completes the address of a server: without a scheme it is http, and then without a port 8700. It has no slash at the end.
func ParseURL(s string) (string, error) {
	wrong := func() (string, error) {
		return "", muster.Errorf(muster.Invalid, "%q is not a server address: write a URL such as http://127.0.0.1:8700, or HOST:PORT", muster.HideCredentials(s))
	}
	address := strings.TrimRight(strings.TrimSpace(s), "/")
	if ip, err := netip.ParseAddr(address); err == nil && ip.Is6() {
		address = "[" + address + "]"
	}
	complete := strings.Contains(address, "://")
	if !complete {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return wrong()
	case u.Port() != "":
		if n, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || n == 0 {
			return wrong()
		}
	case strings.HasSuffix(u.Host, ":"): // an empty port
		return wrong()
	case !complete:
		u.Host += ":" + defaultPort
	}
	u.Host = strings.ToLower(u.Host)
	return strings.TrimRight(u.String(), "/"), nil
}
