package dtf

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
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
	kind    byte // n t f i d s a o: null, true, false, integer, float, string, array, object
	text    string
	number  float64
	items   []value
	members []member // in the order of the first occurrence; keys are unique
}

type member struct {
	key string
	value
}

// parse decodes one JSON value.
func parse(raw []byte) (value, error) {
	if len(raw) > maxFrame {
		return value{}, muster.Errorf(muster.TooLarge, "a message exceeds %d bytes", maxFrame)
	}
	p := parser{rest: raw}
	v, err := p.value(0)
	if err == nil {
		if p.skipSpace(); len(p.rest) > 0 {
			err = p.syntaxError("data after the value")
		}
	}
	if err != nil {
		return value{}, err
	}
	return v, nil
}

// member returns the value of a key of an object, nil if there is none.
func (v *value) member(key string) *value {
	for i := range v.members {
		if v.members[i].key == key {
			return &v.members[i].value
		}
	}
	return nil
}

// with returns the object with a key set.
func (v *value) with(key string, to value) value {
	out := v.without(key)
	out.members = append(out.members, member{key, to})
	return out
}

// without returns the object without a key.
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
func (v *value) canonical() []byte {
	var b bytes.Buffer
	v.write(&b, true)
	return b.Bytes()
}

// strict returns valid JSON: null for NaN and infinite numbers, U+FFFD for lone surrogates.
func (v *value) strict() []byte {
	var b bytes.Buffer
	v.write(&b, false)
	return b.Bytes()
}

func (v *value) write(b *bytes.Buffer, python bool) {
	comma, colon := ",", ":"
	if python {
		comma, colon = ", ", ": "
	}
	switch v.kind {
	case 'n':
		b.WriteString("null")
	case 't':
		b.WriteString("true")
	case 'f':
		b.WriteString("false")
	case 'i':
		b.WriteString(v.text)
	case 'd':
		if !python && (math.IsNaN(v.number) || math.IsInf(v.number, 0)) {
			b.WriteString("null")
			return
		}
		b.WriteString(repr(v.number))
	case 's':
		writeString(b, v.text, python)
	case 'a':
		b.WriteByte('[')
		for i := range v.items {
			if i > 0 {
				b.WriteString(comma)
			}
			v.items[i].write(b, python)
		}
		b.WriteByte(']')
	case 'o':
		members := v.members
		if python { // bytes of WTF-8 sort as code points do
			members = slices.Clone(members)
			slices.SortFunc(members, func(x, y member) int { return strings.Compare(x.key, y.key) })
		}
		b.WriteByte('{')
		for i := range members {
			if i > 0 {
				b.WriteString(comma)
			}
			writeString(b, members[i].key, python)
			b.WriteString(colon)
			members[i].write(b, python)
		}
		b.WriteByte('}')
	}
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

const hexDigits = "0123456789abcdef"

func writeString(b *bytes.Buffer, s string, ascii bool) {
	b.WriteByte('"')
	for len(s) > 0 {
		r, n := decodeWTF8(s)
		s = s[n:]
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteByte(byte(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\f':
			b.WriteString(`\f`)
		case r == '\b':
			b.WriteString(`\b`)
		case r >= ' ' && r <= '~':
			b.WriteByte(byte(r))
		case r < ' ':
			escape(b, uint16(r))
		case !ascii && utf16.IsSurrogate(r):
			b.WriteRune(utf8.RuneError)
		case !ascii:
			b.WriteRune(r)
		case r >= 0x10000:
			high, low := utf16.EncodeRune(r)
			escape(b, uint16(high))
			escape(b, uint16(low))
		default:
			escape(b, uint16(r))
		}
	}
	b.WriteByte('"')
}

func escape(b *bytes.Buffer, u uint16) {
	b.WriteString(`\u`)
	for shift := 12; shift >= 0; shift -= 4 {
		b.WriteByte(hexDigits[u>>shift&0xf])
	}
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
	read int // bytes before rest, for messages
}

func (p *parser) syntaxError(detail string) error {
	return muster.Errorf(muster.Invalid, "invalid JSON: %s at byte %d", detail, p.read)
}

func (p *parser) skip(n int) { p.rest, p.read = p.rest[n:], p.read+n }

func (p *parser) skipSpace() {
	n := 0
	for n < len(p.rest) && (p.rest[n] == ' ' || p.rest[n] == '\t' || p.rest[n] == '\n' || p.rest[n] == '\r') {
		n++
	}
	p.skip(n)
}

func (p *parser) literal(w string) bool {
	if !bytes.HasPrefix(p.rest, []byte(w)) {
		return false
	}
	p.skip(len(w))
	return true
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
	case p.literal("null"):
		return value{kind: 'n'}, nil
	case p.literal("true"):
		return value{kind: 't'}, nil
	case p.literal("false"):
		return value{kind: 'f'}, nil
	case p.literal("NaN"):
		return value{kind: 'd', number: math.NaN()}, nil
	case p.literal("Infinity"):
		return value{kind: 'd', number: math.Inf(1)}, nil
	case p.literal("-Infinity"):
		return value{kind: 'd', number: math.Inf(-1)}, nil
	}
	return p.number()
}

func (p *parser) digits(from int) int {
	for from < len(p.rest) && p.rest[from] >= '0' && p.rest[from] <= '9' {
		from++
	}
	return from
}

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
	float := false
	if end < len(p.rest) && p.rest[end] == '.' {
		if after := p.digits(end + 1); after > end+1 {
			end, float = after, true
		}
	}
	if end < len(p.rest) && p.rest[end]|0x20 == 'e' {
		from := end + 1
		if from < len(p.rest) && (p.rest[from] == '+' || p.rest[from] == '-') {
			from++
		}
		if after := p.digits(from); after > from {
			end, float = after, true
		}
	}
	text := string(p.rest[:end])
	if len(text) > maxDigits {
		return value{}, p.syntaxError("number with too many digits")
	}
	p.skip(end)
	if !float {
		if text == "-0" {
			text = "0"
		}
		return value{kind: 'i', text: text}, nil
	}
	f, _ := strconv.ParseFloat(text, 64) // infinite if it is too large, as in Python
	return value{kind: 'd', number: f}, nil
}

func (p *parser) array(depth int) (value, error) {
	v := value{kind: 'a'}
	p.skip(1)
	if p.skipSpace(); p.literal("]") {
		return v, nil
	}
	for {
		item, err := p.value(depth + 1)
		if err != nil {
			return value{}, err
		}
		v.items = append(v.items, item)
		p.skipSpace()
		switch {
		case p.literal(","):
		case p.literal("]"):
			return v, nil
		default:
			return value{}, p.syntaxError("missing comma in an array")
		}
	}
}

func (p *parser) object(depth int) (value, error) {
	v := value{kind: 'o'}
	p.skip(1)
	if p.skipSpace(); p.literal("}") {
		return v, nil
	}
	at := map[string]int{}
	for {
		p.skipSpace()
		if len(p.rest) == 0 || p.rest[0] != '"' {
			return value{}, p.syntaxError("missing key")
		}
		key, err := p.string()
		if err != nil {
			return value{}, err
		}
		if p.skipSpace(); !p.literal(":") {
			return value{}, p.syntaxError("missing colon")
		}
		item, err := p.value(depth + 1)
		if err != nil {
			return value{}, err
		}
		if i, twice := at[key]; twice {
			v.members[i].value = item
		} else {
			at[key] = len(v.members)
			v.members = append(v.members, member{key, item})
		}
		p.skipSpace()
		switch {
		case p.literal(","):
		case p.literal("}"):
			return v, nil
		default:
			return value{}, p.syntaxError("missing comma in an object")
		}
	}
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
	var r rune
	for _, c := range p.rest[2:6] {
		d := strings.IndexByte(hexDigits, c|0x20)
		if d < 0 || c < '0' {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	p.skip(6)
	return r, true
}

// signatureAge is how old a signed message may be. There is no nonce: within it, a message can be replayed.
const signatureAge = 60 * time.Second

// errSignature is the message of a DTF coordinator for a wrong signature.
const errSignature = "Invalid message signature"

// signer signs and verifies messages with the secret_key of a coordinator. Its zero value does neither.
type signer struct{ secret string }

// enabled reports whether there is a secret.
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
	if signature == nil || signature.kind != 's' || stamp == nil {
		return false
	}
	at, ok := stamp.float()
	if !ok || math.IsNaN(at) || float64(now.UnixNano())/1e9-at > signatureAge.Seconds() {
		return false
	}
	return hmac.Equal([]byte(signature.text), []byte(s.sum(v)))
}

// float returns the number that a value is.
func (v *value) float() (float64, bool) {
	switch v.kind {
	case 'd':
		return v.number, true
	case 'i':
		f, _ := strconv.ParseFloat(v.text, 64)
		return f, true
	}
	return 0, false
}
