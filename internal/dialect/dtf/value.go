package dtf

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/muster-dev/muster"
)

// Bounds of messages.
const (
	maxFrame  = 1 << 20 // bytes of a message, as in the websockets library of the peers
	maxDepth  = 100     // of nested arrays and objects
	maxDigits = 4300    // of a number, as in Python
)

// value is a JSON value as Python's json module decodes it: integers of any length, NaN and Infinity, strings with lone
// surrogates (as WTF-8), the last of equal keys. A signature covers these, but encoding/json does not preserve them.
type value struct {
	kind    byte // w i d s a o: null or true or false, integer, float, string, array, object
	text    string
	number  float64 // of integers, too
	items   []value
	members []member // in the order of the first occurrence; keys are unique
}

type member struct {
	key string
	value
}

func parse(raw []byte) (value, error) {
	if len(raw) > maxFrame {
		return value{}, muster.Errorf(muster.TooLarge, "a message exceeds %d bytes", maxFrame)
	}
	p := parser{rest: raw, size: len(raw)}
	v, err := p.value(0)
	if p.skipSpace(); err == nil && len(p.rest) > 0 {
		err = p.syntaxError("data after the value")
	}
	return v, err
}

func (v *value) member(key string) *value {
	for i := range v.members {
		if v.members[i].key == key {
			return &v.members[i].value
		}
	}
	return nil
}

func (v *value) with(key string, to value) value {
	out := v.without(key)
	out.members = append(out.members, member{key, to})
	return out
}

func (v *value) without(key string) value {
	out := value{kind: 'o'}
	for _, m := range v.members {
		if m.key != key {
			out.members = append(out.members, m)
		}
	}
	return out
}

// canonical returns the text that is signed: Python's json.dumps(v, sort_keys=True).
func (v *value) canonical() []byte { return v.appendTo(nil, true) }

// strict returns valid JSON: null for NaN and infinite numbers, U+FFFD for lone surrogates.
func (v *value) strict() []byte { return v.appendTo(nil, false) }

func (v *value) appendTo(b []byte, python bool) []byte {
	comma, colon := ",", ":"
	if python {
		comma, colon = ", ", ": "
	}
	switch v.kind {
	case 'w', 'i':
		b = append(b, v.text...)
	case 'd':
		if !python && (math.IsNaN(v.number) || math.IsInf(v.number, 0)) {
			return append(b, "null"...)
		}
		b = append(b, repr(v.number)...)
	case 's':
		b = appendString(b, v.text, python)
	case 'a':
		b = append(b, '[')
		for i := range v.items {
			if i > 0 {
				b = append(b, comma...)
			}
			b = v.items[i].appendTo(b, python)
		}
		b = append(b, ']')
	case 'o':
		members := v.members
		if python { // bytes of WTF-8 sort as code points do
			members = slices.Clone(members)
			slices.SortFunc(members, func(x, y member) int { return strings.Compare(x.key, y.key) })
		}
		b = append(b, '{')
		for i := range members {
			if i > 0 {
				b = append(b, comma...)
			}
			b = append(appendString(b, members[i].key, python), colon...)
			b = members[i].appendTo(b, python)
		}
		b = append(b, '}')
	}
	return b
}

// repr returns Python's repr of a float: the shortest exact digits, with an exponent below 1e-4 and from 1e16.
func repr(f float64) string {
	switch abs := math.Abs(f); {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case abs != 0 && (abs < 1e-4 || abs >= 1e16):
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func appendString(b []byte, s string, ascii bool) []byte {
	b = append(b, '"')
	for len(s) > 0 {
		r, n := decodeWTF8(s)
		s = s[n:]
		i := strings.IndexRune("\"\\\n\r\t\f\b", r)
		switch {
		case i >= 0:
			b = append(b, '\\', `"\nrtfb`[i])
		case r >= ' ' && r <= '~':
			b = append(b, byte(r))
		case r < ' ':
			b = fmt.Appendf(b, `\u%04x`, r)
		case !ascii && utf16.IsSurrogate(r):
			b = utf8.AppendRune(b, utf8.RuneError)
		case !ascii:
			b = utf8.AppendRune(b, r)
		case r >= 0x10000:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return append(b, '"')
}

// decodeWTF8 is utf8.DecodeRuneInString for strings with surrogates, which have three bytes each.
func decodeWTF8(s string) (rune, int) {
	if len(s) >= 3 && s[0] == 0xed && s[1] >= 0xa0 && s[1] <= 0xbf {
		return rune(s[0]&0xf)<<12 | rune(s[1]&0x3f)<<6 | rune(s[2]&0x3f), 3
	}
	return utf8.DecodeRuneInString(s)
}

// parser decodes JSON as Python's json.loads does.
type parser struct {
	rest []byte
	size int // of the whole text, for messages
}

func (p *parser) syntaxError(detail string) error {
	return muster.Errorf(muster.Invalid, "invalid JSON: %s at byte %d", detail, p.size-len(p.rest))
}

func (p *parser) skip(n int) { p.rest = p.rest[n:] }

func (p *parser) skipSpace() { p.rest = bytes.TrimLeft(p.rest, " \t\n\r") }

func (p *parser) literal(w string) (found bool) {
	p.rest, found = bytes.CutPrefix(p.rest, []byte(w))
	return found
}

func (p *parser) value(depth int) (value, error) {
	p.skipSpace()
	switch {
	case len(p.rest) == 0:
		return value{}, p.syntaxError("unexpected end")
	case depth > maxDepth:
		return value{}, p.syntaxError("too deep nesting")
	case p.rest[0] == '{':
		return p.object(depth)
	case p.rest[0] == '[':
		return p.array(depth)
	case p.rest[0] == '"':
		s, err := p.string()
		return value{kind: 's', text: s}, err
	}
	for _, word := range []string{"null", "true", "false", "NaN", "Infinity", "-Infinity"} {
		if !p.literal(word) {
			continue
		}
		if f, err := strconv.ParseFloat(word, 64); err == nil {
			return value{kind: 'd', number: f}, nil
		}
		return value{kind: 'w', text: word}, nil
	}
	return p.number()
}

// digits returns the index after the digits that begin at from.
func (p *parser) digits(from int) int {
	for from < len(p.rest) && p.rest[from] >= '0' && p.rest[from] <= '9' {
		from++
	}
	return from
}

// number reads a number by hand: a message of a peer that has not authenticated yet may consist of hundreds of thousands.
func (p *parser) number() (value, error) {
	n := 0
	if p.rest[0] == '-' {
		n = 1
	}
	end := p.digits(n)
	if end == n {
		return value{}, p.syntaxError("missing value")
	}
	if p.rest[n] == '0' {
		end = n + 1 // a leading zero is a number of its own
	}
	integer := end
	if end < len(p.rest) && p.rest[end] == '.' {
		if after := p.digits(end + 1); after > end+1 {
			end = after
		}
	}
	if end < len(p.rest) && p.rest[end]|0x20 == 'e' {
		from := end + 1
		if from < len(p.rest) && (p.rest[from] == '+' || p.rest[from] == '-') {
			from++
		}
		if after := p.digits(from); after > from {
			end = after
		}
	}
	text := string(p.rest[:end])
	if len(text) > maxDigits {
		return value{}, p.syntaxError("number with too many digits")
	}
	p.skip(len(text))
	f, _ := strconv.ParseFloat(text, 64) // infinite if it is too large, as in Python
	if end > integer {
		return value{kind: 'd', number: f}, nil
	}
	if text == "-0" {
		text = "0"
	}
	return value{kind: 'i', text: text, number: f}, nil
}

// list decodes the items of an array or object, with the brackets.
func (p *parser) list(name, end string, item func() error) error {
	p.skip(1)
	if p.skipSpace(); p.literal(end) {
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		p.skipSpace()
		switch {
		case p.literal(","):
		case p.literal(end):
			return nil
		default:
			return p.syntaxError("missing comma in an " + name)
		}
	}
}

func (p *parser) array(depth int) (value, error) {
	v := value{kind: 'a'}
	err := p.list("array", "]", func() error {
		item, err := p.value(depth + 1)
		v.items = append(v.items, item)
		return err
	})
	return v, err
}

func (p *parser) object(depth int) (value, error) {
	v := value{kind: 'o'}
	at := map[string]int{}
	err := p.list("object", "}", func() error {
		p.skipSpace()
		if len(p.rest) == 0 || p.rest[0] != '"' {
			return p.syntaxError("missing key")
		}
		key, err := p.string()
		if err != nil {
			return err
		}
		if p.skipSpace(); !p.literal(":") {
			return p.syntaxError("missing colon")
		}
		item, err := p.value(depth + 1)
		if i, twice := at[key]; twice {
			v.members[i].value = item
		} else {
			at[key] = len(v.members)
			v.members = append(v.members, member{key, item})
		}
		return err
	})
	return v, err
}

var escapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func (p *parser) string() (string, error) {
	var b []byte
	p.skip(1)
	for {
		n := 0
		for n < len(p.rest) && p.rest[n] != '"' && p.rest[n] != '\\' && p.rest[n] >= ' ' {
			n++
		}
		if !utf8.Valid(p.rest[:n]) {
			return "", p.syntaxError("string is not UTF-8")
		}
		b = append(b, p.rest[:n]...)
		p.skip(n)
		switch {
		case len(p.rest) == 0:
			return "", p.syntaxError("unterminated string")
		case p.rest[0] == '"':
			p.skip(1)
			return string(b), nil
		case p.rest[0] != '\\':
			return "", p.syntaxError("control character in a string")
		case len(p.rest) < 2:
			return "", p.syntaxError("unterminated string")
		}
		if c, short := escapes[p.rest[1]]; short {
			b = append(b, c)
			p.skip(2)
			continue
		}
		r, ok := p.unicode()
		if !ok {
			return "", p.syntaxError("invalid escape")
		}
		if r >= 0xd800 && r < 0xdc00 { // the first half of a surrogate pair
			before := *p
			if low, ok := p.unicode(); ok && low >= 0xdc00 && low < 0xe000 {
				r = utf16.DecodeRune(r, low)
			} else {
				*p = before
			}
		}
		if utf16.IsSurrogate(r) {
			b = append(b, 0xe0|byte(r>>12), 0x80|byte(r>>6&0x3f), 0x80|byte(r&0x3f))
			continue
		}
		b = utf8.AppendRune(b, r)
	}
}

// unicode decodes \uXXXX.
func (p *parser) unicode() (rune, bool) {
	if len(p.rest) < 6 || p.rest[0] != '\\' || p.rest[1] != 'u' {
		return 0, false
	}
	r, err := strconv.ParseUint(string(p.rest[2:6]), 16, 16)
	if err != nil {
		return 0, false
	}
	p.skip(6)
	return rune(r), true
}

// signatureAge is how old a signed message may be. There is no nonce: within it, a message can be replayed.
const signatureAge = 60 * time.Second

// errSignature is the message of a DTF coordinator for a wrong signature.
const errSignature = "Invalid message signature"

// signer signs and verifies messages with the secret_key of a coordinator. Its zero value does neither.
type signer struct{ secret string }

func (s signer) enabled() bool { return s.secret != "" }

// sum returns the base64 HMAC-SHA256 of the canonical text of an object without its signature.
func (s signer) sum(v *value) string {
	unsigned := v.without("signature")
	mac := hmac.New(sha256.New, []byte(s.secret))
	mac.Write(unsigned.canonical())
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// sign encodes a message, with timestamp and signature if there is a secret.
func (s signer) sign(message any, now time.Time) ([]byte, error) {
	raw, err := json.Marshal(message)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "cannot encode a message: %w", err)
	}
	if !s.enabled() {
		return raw, nil
	}
	v, err := parse(raw)
	if err != nil {
		return nil, err
	}
	v = v.with("timestamp", value{kind: 'i', text: strconv.FormatInt(now.Unix(), 10)})
	v = v.with("signature", value{kind: 's', text: s.sum(&v)})
	return v.canonical(), nil
}

// verify reports whether a message was signed with the secret and is not older than signatureAge. It accepts times in the future, as DTF
// does.
func (s signer) verify(v *value, now time.Time) bool {
	signature, stamp := v.member("signature"), v.member("timestamp")
	if signature == nil || signature.kind != 's' || stamp == nil || stamp.kind != 'd' && stamp.kind != 'i' {
		return false
	}
	if math.IsNaN(stamp.number) || float64(now.UnixNano())/1e9-stamp.number > signatureAge.Seconds() {
		return false
	}
	return hmac.Equal([]byte(signature.text), []byte(s.sum(v)))
}
