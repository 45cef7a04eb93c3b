package dtf

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/muster-dev/muster"
)

// The vector of contracts.md 3.5.
const vectorToken = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJ3MSIsInJvbGUiOiJ3b3JrZXIiLCJpYXQiOjE3MTUwMDAwMDAsImV4cCI6MTcxNTAwMzYwMH0.7dwVAO3wM7jJXPgK6E7rUvuIca-od0AyHCB9b7mX6lU"

func TestTokensAreThoseOfTheVector(t *testing.T) {
	at := time.Unix(1715000000, 0)
	got, err := newToken("s3cr3t", &claims{Subject: "w1", Role: "worker", Issued: jwt.NewNumericDate(at), Expires: jwt.NewNumericDate(at.Add(time.Hour))})
	if err != nil || got != vectorToken {
		t.Errorf("minted %s, %v", got, err)
	}
	c, err := parseToken("s3cr3t", vectorToken, at)
	if err != nil || c.Subject != "w1" || c.Role != "worker" {
		t.Errorf("read %+v, %v", c, err)
	}
	for name, try := range map[string]func() error{
		"another secret": func() error { _, err := parseToken("s3cr3u", vectorToken, at); return err },
		"an hour later":  func() error { _, err := parseToken("s3cr3t", vectorToken, at.Add(time.Hour+2*time.Second)); return err },
		"no text":        func() error { _, err := parseToken("s3cr3t", "a.b.c", at); return err },
		"no algorithm": func() error {
			_, err := parseToken("s3cr3t", "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0."+strings.Split(vectorToken, ".")[1]+".", at)
			return err
		},
	} {
		if err := try(); muster.CodeOf(err) != muster.Unauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Within a second of leeway, and with the clock of an hour ago, it is valid.
	for _, now := range []time.Time{at.Add(time.Hour), at.Add(-time.Hour)} {
		if _, err := parseToken("s3cr3t", vectorToken, now); err != nil {
			t.Errorf("at %v: %v", now, err)
		}
	}
	// R0 writes its times as fractions.
	float, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "w1", "iat": 1715000000.25, "exp": 1715003600.25, "roles": []string{"worker"}}).SignedString([]byte("s3cr3t"))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := parseToken("s3cr3t", float, at); err != nil || len(c.Roles) != 1 {
		t.Errorf("R0's: %+v, %v", c, err)
	}
}

func TestTokensOutlastARestart(t *testing.T) {
	dir, now := t.TempDir(), time.Unix(1715000000, 0)
	first, err := openTokens(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := first.issue("w1", "key", now)
	if err != nil {
		t.Fatal(err)
	}
	second, err := openTokens(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	who, old, err := second.verify(token, now)
	if err != nil || who.Worker != "w1" || who.Key != "key" || old {
		t.Errorf("after a restart: %+v, %v, %v", who, old, err)
	}
	if _, old, err := second.verify(token, now.Add(tokenTTL*2/3)); err != nil || !old {
		t.Errorf("when it is time for another: %v, %v", old, err)
	}
	// A token with the right signature that was not issued is not known.
	forged, err := newToken(second.secret, &claims{Subject: "w2", Expires: jwt.NewNumericDate(now.Add(time.Hour))})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := second.verify(forged, now); muster.CodeOf(err) != muster.Unauthenticated {
		t.Errorf("one that was not issued: %v", err)
	}
	if info, err := os.Stat(first.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(first.path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openTokens(dir, nil); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged file: %v", err)
	}
}

// Where there are too many tokens the oldest one of the key with the most makes room, and not one of another key.
func TestTokensMakeRoom(t *testing.T) {
	now := time.Unix(1715000000, 0)
	tokens, err := openTokens(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxTokens - 1 {
		tokens.known[strconv.Itoa(i)] = issuedToken{Worker: strconv.Itoa(i), Key: "many", Expires: now.Add(time.Hour + time.Duration(i))}
	}
	own, err := tokens.issue("w1", "one", now.Add(-tokenTTL/2)) // it is the oldest of all but those
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := tokens.issue("x"+strconv.Itoa(i), "many", now); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := tokens.verify(own, now); err != nil || len(tokens.known) != maxTokens {
		t.Errorf("%d tokens, %v", len(tokens.known), err)
	}
	delete(tokens.known, sha256Hex(own))
	if again, err := tokens.issue("w1", "one", now.Add(-tokenTTL/2)); err != nil || tokens.known[sha256Hex(again)].Worker != "w1" {
		t.Errorf("an unknown token is issued: %v", err)
	}
	for _, i := range []string{"0", "1", "2"} {
		if _, known := tokens.known[i]; known {
			t.Errorf("token %s is known", i)
		}
	}
}

const exampleConfig = `{"secret_key":"s3cr3t","token_expiry":3600,"required_roles":["worker"],"api_keys":{
	"0123":{"name":"w","roles":["worker"],"created":"2025-03-08T10:00:00","key_id":"x"},"4567":{"name":"a","roles":["admin"],"created":1},
	"89ab":{"name":"n","roles":["other"]},"cdef":{"name":"o","roles":["observer"]}}}`

func TestSecurityConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "security_config.json")
	if err := os.WriteFile(path, []byte(exampleConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := readConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"0123": "worker", "4567": "admin", "89ab": "", "cdef": "observer", "nope": ""} {
		if got := strings.Join(c.roles(key), ","); got != want {
			t.Errorf("%s has the roles %q, want %q", key, got, want)
		}
	}
	tokens, err := openTokens(t.TempDir(), c)
	if err != nil || tokens.secret != "s3cr3t" || tokens.ttl != time.Hour {
		t.Errorf("tokens: %+v, %v", tokens, err)
	}
	for _, bad := range []string{"", "[]", `{"api_keys":{}}`, `{"secret_key":5}`, `{"secret_key":"x","token_expiry":-1}`, `{"secret_key":"x","api_keys":{"":{}}}`} {
		if _, err := parseConfig([]byte(bad)); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
	if _, err := readConfig(path + "x"); muster.CodeOf(err) != muster.Invalid {
		t.Errorf("no file: %v", err)
	}
}

// Whatever is read has a secret, and no key without a role is valid.
func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(exampleConfig))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := parseConfig(raw)
		if err != nil {
			return
		}
		if c.SecretKey == "" || len(c.RequiredRoles) == 0 {
			t.Fatalf("%q: %+v", raw, c)
		}
		for key, k := range c.APIKeys {
			if len(k.Roles) == 0 && c.roles(key) != nil {
				t.Fatalf("%q: %q is valid", raw, key)
			}
		}
	})
}

// A message that was read has a type and ids that can be shown.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"type":"register","worker_id":"w1","hostname":"vm","capabilities":{"hardware":["cpu"],"cpu":{"cores":2}}}`))
	f.Add([]byte(`{"type":"execute_task_batch","tasks":[{"task_id":"a","task_type":"hash","config":{}}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, v, err := decode(raw)
		if err != nil {
			return
		}
		if m.Type == "" || v.kind != 'o' || len(m.WorkerID) > maxID || strings.ContainsAny(m.TaskID, "\n\x00") {
			t.Fatalf("%q: %+v", raw, m)
		}
	})
}

// No token is valid for another secret.
func FuzzReadToken(f *testing.F) {
	f.Add(vectorToken)
	f.Fuzz(func(t *testing.T, token string) {
		at := time.Unix(1715000000, 0)
		if _, err := parseToken("s3cr3t", token, at); err != nil {
			return
		}
		if _, err := parseToken("another", token, at); err == nil {
			t.Fatalf("%q is valid for two secrets", token)
		}
	})
}
