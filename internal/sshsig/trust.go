package sshsig

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// TrustedKey is a key of a file of trusted keys.
type TrustedKey struct {
	Key     ssh.PublicKey
	Comment string // or the principals

	after, before time.Time // when it is valid; zero for no limit
}

// ParseTrusted reads the keys that a file trusts for signatures of a namespace. Each line is as in authorized_keys or a public key file
// (TYPE KEY COMMENT), or as in an allowed_signers file of ssh-keygen (PRINCIPALS [OPTIONS] TYPE KEY) with the options namespaces,
// valid-after and valid-before. Principals are not compared with anything. Keys for other namespaces only are left out. Other options, and lines
// of another form, are errors, because ignoring a restriction would trust too much.
func ParseTrusted(data []byte, namespace string) ([]TrustedKey, error) {
	var keys []TrustedKey
	n := 0
	for line := range bytes.Lines(data) {
		n++
		text := strings.TrimSpace(string(line))
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		key, use, err := parseLine(text, namespace)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if use {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

func parseLine(line, namespace string) (k TrustedKey, use bool, err error) {
	first, rest := cutField(line)
	principals, signers := "", false
	if !isKeyType(first) { // an allowed_signers line, or options of authorized_keys
		principals, signers = first, true
		line = rest
		first, _ = cutField(rest)
		if strings.ContainsAny(principals, `!="`) || slices.Contains(accessOptions, principals) || strings.HasPrefix(principals, "no-") {
			return k, false, fmt.Errorf("%.40s is not supported before a key: write TYPE KEY COMMENT, or PRINCIPALS TYPE KEY", principals)
		}
	}
	var options []string
	if signers && !isKeyType(first) {
		if options, line, err = cutOptions(line); err != nil {
			return k, false, err
		}
	}
	key, comment, _, more, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil || len(more) > 0 {
		return k, false, errors.New("not a public key: write TYPE KEY COMMENT as in authorized_keys, or PRINCIPALS TYPE KEY as in allowed_signers")
	}
	if err := CheckKey(key); err != nil {
		return k, false, err
	}
	k, use = TrustedKey{Key: key, Comment: comment}, true
	if signers {
		k.Comment = principals
	}
	for _, o := range options {
		name, value, _ := strings.Cut(o, "=")
		switch strings.ToLower(name) {
		case "namespaces":
			use, err = matchesNamespace(value, namespace)
		case "valid-after":
			k.after, err = parseTime(value)
		case "valid-before":
			k.before, err = parseTime(value)
		default:
			return k, false, fmt.Errorf("the option %.40s is not supported: use namespaces, valid-after and valid-before", name)
		}
		if err != nil {
			return k, false, fmt.Errorf("%s: %w", name, err)
		}
	}
	return k, use, nil
}

// ValidAt returns an error if the key is not valid at a time.
func (k *TrustedKey) ValidAt(t time.Time) error {
	switch {
	case !k.after.IsZero() && t.Before(k.after):
		return fmt.Errorf("the key %s is valid from %s on only", Fingerprint(k.Key), k.after.UTC().Format(time.RFC3339))
	case !k.before.IsZero() && !t.Before(k.before):
		return fmt.Errorf("the key %s was valid until %s", Fingerprint(k.Key), k.before.UTC().Format(time.RFC3339))
	}
	return nil
}

// accessOptions are options of authorized_keys that could be read as a principal.
var accessOptions = []string{"cert-authority", "restrict"}

// isKeyType reports whether a word is the type of a key, accepted or not, and not a principal.
func isKeyType(word string) bool {
	return strings.HasPrefix(word, "ssh-") || strings.HasPrefix(word, "ecdsa-sha2-") || strings.HasPrefix(word, "sk-")
}

func cutField(s string) (first, rest string) {
	i := strings.IndexAny(s, " \t")
	if i < 0 {
		return s, ""
	}
	return s[:i], strings.TrimLeft(s[i:], " \t")
}

// cutOptions splits comma-separated options, whose values may be quoted, from the rest of a line.
func cutOptions(s string) (options []string, rest string, err error) {
	var o strings.Builder
	quoted := false
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == ' ' || c == '\t'):
			options = append(options, o.String())
			o.Reset()
			if c != ',' {
				return options, strings.TrimLeft(s[i:], " \t"), nil
			}
		default:
			o.WriteByte(c)
		}
	}
	return nil, "", errors.New("not a public key: the line ends after its options")
}

// matchesNamespace reports whether a list of patterns with * and ? has the namespace.
func matchesNamespace(list, namespace string) (bool, error) {
	patterns := strings.Split(list, ",")
	for _, p := range patterns {
		if p == "" || strings.ContainsAny(p, `![]\`) {
			return false, fmt.Errorf("unsupported pattern %.40q: write names, with * and ? as wildcards", p)
		}
	}
	return slices.ContainsFunc(patterns, func(p string) bool { ok, err := path.Match(p, namespace); return ok && err == nil }), nil
}

// parseTime reads YYYYMMDD[HHMM[SS]] with an optional Z: UTC with it, else local time.
func parseTime(s string) (time.Time, error) {
	digits, utc := strings.CutSuffix(s, "Z")
	zone := time.Local
	if utc {
		zone = time.UTC
	}
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if len(digits) == len(layout) {
			if t, err := time.ParseInLocation(layout, digits, zone); err == nil {
				return t, nil
			}
		}
	}
	return time.Time{}, fmt.Errorf("%.30q is not a time: write YYYYMMDD or YYYYMMDDHHMMSS, with a Z for UTC", s)
}
