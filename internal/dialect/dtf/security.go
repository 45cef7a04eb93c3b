package dtf

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
	"github.com/muster-dev/muster/internal/dialect/lenient"
)

// The roles of DTF.
const (
	roleWorker   = "worker"
	roleAdmin    = "admin"
	roleObserver = "observer"
)

// securityConfig is a security_config.json of a DTF coordinator.
type securityConfig struct {
	SecretKey     string   `json:"secret_key"`
	TokenExpiry   float64  `json:"token_expiry"` // seconds
	RequiredRoles []string `json:"required_roles"`
	APIKeys       map[string]struct {
		Roles []string `json:"roles"`
	} `json:"api_keys"`
}

const maxConfig = 1 << 20

// readConfig reads a security_config.json. It ignores unknown fields, since versions of DTF add some.
func readConfig(path string) (*securityConfig, error) {
	raw, err := readLimited(path)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "cannot read the security configuration: %w", err)
	}
	c, err := parseConfig(raw)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "security configuration %s: %w", path, err)
	}
	return c, nil
}

// readLimited returns at most maxConfig+1 bytes of a file.
func readLimited(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxConfig+1))
}

func parseConfig(raw []byte) (*securityConfig, error) {
	if len(raw) > maxConfig {
		return nil, muster.Errorf(muster.TooLarge, "larger than %d bytes", maxConfig)
	}
	c := new(securityConfig)
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, muster.Errorf(muster.Invalid, "invalid JSON: %w", err)
	}
	_, emptyKey := c.APIKeys[""]
	switch {
	case c.SecretKey == "":
		return nil, muster.Errorf(muster.Invalid, "missing secret_key")
	case c.TokenExpiry < 0 || c.TokenExpiry > 10*365*86400:
		return nil, muster.Errorf(muster.Invalid, "token_expiry is not a number of seconds up to ten years")
	case emptyKey:
		return nil, muster.Errorf(muster.Invalid, "empty API key")
	case len(c.RequiredRoles) == 0:
		c.RequiredRoles = []string{roleWorker}
	}
	return c, nil
}

// roles returns the roles of an API key, nil if it is unknown or has neither a required role nor admin or observer.
func (c *securityConfig) roles(key string) []string {
	if c == nil {
		return nil
	}
	roles := c.APIKeys[key].Roles
	if slices.ContainsFunc(roles, func(r string) bool { return slices.Contains(c.RequiredRoles, r) || r == roleAdmin || r == roleObserver }) {
		return roles
	}
	return nil
}

// claims are those of a token, in the order in which DTF writes them. Role is that of R1, Roles those of R0.
type claims struct {
	jwt.RegisteredClaims `json:"-"` // the others are not checked: clocks of peers may be off

	Subject string           `json:"sub"`
	Role    string           `json:"role,omitempty"`
	Roles   []string         `json:"roles,omitempty"`
	Issued  *jwt.NumericDate `json:"iat,omitempty"`
	Expires *jwt.NumericDate `json:"exp,omitempty"`
}

// GetExpirationTime implements jwt.Claims.
func (c *claims) GetExpirationTime() (*jwt.NumericDate, error) { return c.Expires, nil }

// newToken signs a token as DTF's coordinators do.
func newToken(secret string, c *claims) (string, error) {
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString([]byte(secret))
	if err != nil {
		return "", muster.Errorf(muster.Internal, "cannot sign a token: %w", err)
	}
	return token, nil
}

// parseToken verifies a token's signature and expiry, with one second of leeway as in DTF.
func parseToken(secret, token string, now time.Time) (*claims, error) {
	c := new(claims)
	if len(token) > 8<<10 {
		return nil, muster.Errorf(muster.Unauthenticated, "the token is too long")
	}
	_, err := jwt.ParseWithClaims(token, c, func(*jwt.Token) (any, error) { return []byte(secret), nil },
		jwt.WithValidMethods([]string{"HS256"}), jwt.WithExpirationRequired(), jwt.WithLeeway(time.Second), jwt.WithTimeFunc(func() time.Time { return now }))
	if err != nil {
		return nil, muster.Errorf(muster.Unauthenticated, "invalid token: %w", err)
	}
	if c.Subject == "" {
		return nil, muster.Errorf(muster.Unauthenticated, "the token has no sub")
	}
	return c, checkID("the token's sub", c.Subject)
}

const (
	tokenTTL  = 7 * 24 * time.Hour // without token_expiry; a token is renewed after half of it
	maxTokens = 10_000             // more than there are workers: see evict
)

type issuedToken struct {
	Worker  string    `json:"worker"`
	Key     string    `json:"key"` // for which it was issued: it is valid as long as the key
	Expires time.Time `json:"expires"`
}

// tokens issues and verifies tokens of workers, also after a restart. Its methods may be called concurrently.
type tokens struct {
	path   string
	secret string
	ttl    time.Duration

	mu     sync.Mutex
	known  map[string]issuedToken // by the token's SHA-256
	latest map[string]latestToken // by worker, since the start
}

type latestToken struct {
	token, key string
	expires    time.Time
}

// openTokens reads the tokens in dir. The secret is that of the configuration, or a random one that is kept in dir.
func openTokens(dir string, c *securityConfig) (*tokens, error) {
	t := &tokens{path: filepath.Join(dir, "tokens.json"), ttl: tokenTTL, known: map[string]issuedToken{}, latest: map[string]latestToken{}}
	var stored struct {
		Secret string                 `json:"secret"`
		Tokens map[string]issuedToken `json:"tokens"`
	}
	raw, err := os.ReadFile(t.path)
	if err != nil && !os.IsNotExist(err) {
		return nil, muster.Errorf(muster.Unavailable, "cannot read the tokens of DTF workers: %w", err)
	}
	if err == nil {
		if err := json.Unmarshal(raw, &stored); err != nil {
			return nil, muster.Errorf(muster.Internal, "%s is damaged: remove it; workers then authenticate with their keys again: %w", t.path, err)
		}
	}
	t.secret = stored.Secret
	maps.Copy(t.known, stored.Tokens)
	if c != nil {
		t.secret = c.SecretKey
		if c.TokenExpiry > 0 {
			t.ttl = time.Duration(c.TokenExpiry * float64(time.Second))
		}
	}
	if t.secret == "" {
		var random [32]byte
		_, _ = rand.Read(random[:]) // never fails
		t.secret = hex.EncodeToString(random[:])
	}
	return t, t.save()
}

func (t *tokens) issue(worker, key string, now time.Time) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last := t.latest[worker]; last.key == key && last.expires.Sub(now) >= t.ttl/2 {
		if _, known := t.known[sha256Hex(last.token)]; known {
			return last.token, nil // some workers send their key on every connection
		}
	}
	maps.DeleteFunc(t.known, func(_ string, i issuedToken) bool { return now.After(i.Expires) })
	maps.DeleteFunc(t.latest, func(_ string, i latestToken) bool { return now.After(i.expires) })
	if len(t.known) >= maxTokens {
		t.evict()
	}
	expires := now.Add(t.ttl)
	token, err := newToken(t.secret, &claims{
		Subject: worker, Role: roleWorker, Roles: []string{roleWorker},
		Issued: jwt.NewNumericDate(now), Expires: jwt.NewNumericDate(expires),
	})
	if err != nil {
		return "", err
	}
	t.known[sha256Hex(token)] = issuedToken{Worker: worker, Key: key, Expires: expires}
	t.latest[worker] = latestToken{token: token, key: key, expires: expires}
	return token, t.save()
}

// evict removes the oldest token of the key that has the most, so that no key evicts the tokens of others. The caller holds mu.
func (t *tokens) evict() {
	count, busiest := map[string]int{}, ""
	for _, i := range t.known {
		if count[i.Key]++; count[i.Key] > count[busiest] {
			busiest = i.Key
		}
	}
	oldest := ""
	for hash, i := range t.known {
		if i.Key == busiest && (oldest == "" || i.Expires.Before(t.known[oldest].Expires)) {
			oldest = hash
		}
	}
	delete(t.known, oldest)
}

// verify returns the issued token. renew is true after half of its lifetime.
func (t *tokens) verify(token string, now time.Time) (issued issuedToken, renew bool, err error) {
	c, err := parseToken(t.secret, token, now)
	if err != nil {
		return issuedToken{}, false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	issued, known := t.known[sha256Hex(token)]
	if !known || issued.Worker != c.Subject {
		return issuedToken{}, false, muster.Errorf(muster.Unauthenticated, "the token was not issued here")
	}
	return issued, issued.Expires.Sub(now) < t.ttl/2, nil
}

// save writes all tokens to disk. The caller holds mu, or is alone.
func (t *tokens) save() error {
	return writeState(t.path, lenient.MustMarshal(map[string]any{"secret": t.secret, "tokens": t.known}))
}

// writeState replaces a file of the gateway or the bridge. Its errors are Unavailable.
func writeState(path string, data []byte) error {
	if err := atomicfile.Write(path, data, 0o600); err != nil {
		return muster.Errorf(muster.Unavailable, "cannot write %s: %w", path, err)
	}
	return nil
}

func sha256Hex(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
