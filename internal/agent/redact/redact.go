package redact

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strings"

	"github.com/muster-dev/muster"
)

const (
	// MinSize is the smallest size in bytes of a value that is replaced, without the white space around it. A shorter one is in too many
	// words.
	MinSize = muster.MinSecretSize

	// Mask is what values are replaced by.
	Mask = "***"

	maxPattern = 512 // bytes; a longer value is searched for in parts
	overlap    = 2 * MinSize
)

// Redactor replaces secret values in texts. A nil Redactor replaces nothing. Its methods may be called concurrently.
type Redactor struct {
	patterns map[uint64][]string // by their first MinSize bytes
	starts   map[string]struct{} // the first 1 to MinSize-1 bytes of all patterns

	// filter has a bit for the hash of each key of patterns, so that one look rejects most texts.
	filter [1 << hashBits / 64]uint64
}

// New returns a Redactor for values, nil if it would replace nothing.
func New(values [][]byte) *Redactor {
	r := &Redactor{patterns: map[uint64][]string{}, starts: map[string]struct{}{}}
	all := map[string]struct{}{}
	for _, value := range values {
		for _, form := range append(forms(value), formsOfLines(value)...) {
			addParts(all, form)
		}
	}
	for pattern := range all {
		r.add(pattern)
	}
	if len(r.patterns) == 0 {
		return nil
	}
	return r
}

// formsOfLines returns the forms of each line of a value with several ones.
func formsOfLines(value []byte) (all []string) {
	if !bytes.ContainsAny(bytes.TrimSpace(value), "\r\n") {
		return nil
	}
	for line := range bytes.Lines(value) {
		all = append(all, forms(line)...)
	}
	return all
}

// addParts adds the patterns of a text: its parts, which overlap so that a line break at the start of one is in the middle of another.
func addParts(all map[string]struct{}, text string) {
	for len(text) > maxPattern {
		addShifted(all, text[:maxPattern])
		text = text[maxPattern-overlap:]
	}
	addShifted(all, text)
}

// addShifted adds a pattern, and what is left of it after a line break within its first MinSize bytes.
func addShifted(all map[string]struct{}, pattern string) {
	for n := 0; n < MinSize && n+MinSize <= len(pattern); n++ {
		all[pattern[n:]] = struct{}{}
	}
}

func (r *Redactor) add(pattern string) {
	if strings.ContainsAny(pattern[:MinSize], "\r\n") {
		return // else the end of each line may be the beginning of a value, and would be held back
	}
	key := binary.LittleEndian.Uint64([]byte(pattern))
	r.patterns[key] = append(r.patterns[key], pattern)
	h := hash(key)
	r.filter[h/64] |= 1 << (h % 64)
	for n := 1; n < MinSize; n++ {
		r.starts[pattern[:n]] = struct{}{}
	}
}

const hashBits = 16

func hash(key uint64) uint64 { return key * 0x9e3779b97f4a7c15 >> (64 - hashBits) }

// Bytes returns b with *** in the place of values.
func (r *Redactor) Bytes(b []byte) []byte {
	if r == nil {
		return b
	}
	s := r.NewStream()
	return s.Close(s.Write(nil, b))
}

// String is Bytes for a string.
func (r *Redactor) String(s string) string {
	if r == nil {
		return s
	}
	return string(r.Bytes([]byte(s)))
}

// JSON is Bytes for JSON, which stays valid: values are found in decoded strings, and in numbers, which become strings. If a value spans
// several of these the result is the string "***". Other texts are handled by Bytes.
func (r *Redactor) JSON(raw json.RawMessage) json.RawMessage {
	if r == nil || len(raw) == 0 {
		return raw
	}
	if !json.Valid(raw) {
		return r.Bytes(raw)
	}
	out := make(json.RawMessage, 0, len(raw))
	for rest := []byte(raw); len(rest) > 0; {
		n := tokenSize(rest)
		out = r.appendToken(out, rest[:n])
		rest = rest[n:]
	}
	if out = r.Bytes(out); !json.Valid(out) {
		return json.RawMessage(`"` + Mask + `"`)
	}
	return out
}

// tokenSize returns the size of the string, the number or name, or the other character at the start of valid JSON.
func tokenSize(b []byte) int {
	if b[0] == '"' {
		n := 1
		for b[n] != '"' {
			if b[n] == '\\' {
				n++
			}
			n++
		}
		return n + 1
	}
	n := bytes.IndexAny(b, "\"{}[],: \t\r\n")
	if n < 0 {
		return len(b)
	}
	return max(1, n)
}

func (r *Redactor) appendToken(dst, token []byte) []byte {
	text := string(token)
	if token[0] == '"' && json.Unmarshal(token, &text) != nil {
		return append(dst, token...)
	}
	clean := r.String(text)
	if clean == text {
		return append(dst, token...)
	}
	b, err := json.Marshal(clean)
	if err != nil {
		return append(append(append(dst, '"'), Mask...), '"')
	}
	return append(dst, b...)
}

// Stream replaces values in a text that arrives in pieces. It holds back the end of a piece only while that is the beginning of a value. A
// line break is held back only after at least MinSize bytes of one.
type Stream struct {
	r      *Redactor
	text   []byte // that is held back
	masked int    // how many bytes of it are replaced in any case
	inMask bool   // the last byte that was written is the end of a mask
	cost   int    // see TakeCost
}

// NewStream returns a Stream. The Redactor must not be nil.
func (r *Redactor) NewStream() *Stream { return &Stream{r: r} }

// Write appends to dst what can be written of the text so far and b. It does not keep b.
func (s *Stream) Write(dst, b []byte) []byte {
	if len(s.text) > 0 {
		s.text = append(s.text, b...)
		b = s.text
	}
	dst, n := s.scan(dst, b, false)
	s.text = append(s.text[:0], b[n:]...)
	if len(s.text) == 0 && cap(s.text) > maxPattern {
		s.text = nil
	}
	return dst
}

// TakeCost returns the work since the last call, as bytes of the text that were compared with values. It is small for most texts; a text that
// repeats the beginnings of long values can cost a thousand times its size.
func (s *Stream) TakeCost() int {
	n := s.cost
	s.cost = 0
	return n
}

// Close appends the rest to dst: the text has ended. The Stream can be used for another text.
func (s *Stream) Close(dst []byte) []byte {
	dst, _ = s.scan(dst, s.text, true)
	s.text, s.masked, s.inMask = nil, 0, false
	return dst
}

// scan appends what can be written of text to dst, and returns how much of text that is. A complete text has no continuation.
func (s *Stream) scan(dst, text []byte, complete bool) ([]byte, int) {
	var (
		r       = s.r
		filter  = &r.filter
		masked  = s.masked // what is before it is replaced, from written
		written = 0
		end     = len(text)
		i       = 0
	)
	for ; i+MinSize <= len(text); i++ {
		key := binary.LittleEndian.Uint64(text[i:])
		if h := hash(key); filter[h/64]&(1<<(h%64)) == 0 {
			continue
		}
		longest, open := 0, false
		for _, p := range r.patterns[key] {
			n, found, more := match(text[i:], p)
			if s.cost += n; found {
				longest = max(longest, n)
			}
			open = open || more
		}
		if open && !complete {
			end = i
			break
		}
		if longest == 0 {
			continue
		}
		if i > masked {
			dst = s.append(dst, text, written, masked, i)
			written = i
		}
		masked = max(masked, i+longest)
	}
	for ; i < end && !complete; i++ { // the last bytes
		if _, ok := r.starts[string(text[i:])]; ok {
			end = i
		}
	}
	dst = s.append(dst, text, written, masked, end)
	s.masked = max(0, masked-end)
	return dst, end
}

// append appends text[from:to] to dst, and *** in the place of what is before masked.
func (s *Stream) append(dst, text []byte, from, masked, to int) []byte {
	for ; from < min(masked, to); from++ {
		switch c := text[from]; {
		case c == '\n' || c == '\r': // lines stay lines
			dst, s.inMask = append(dst, c), false
		case !s.inMask:
			dst, s.inMask = append(dst, Mask...), true
		}
	}
	if from < to {
		dst, s.inMask = append(dst, text[from:to]...), false
	}
	return dst
}

// match compares text with a pattern, whose first MinSize bytes it begins with. Later bytes may be on other lines. It returns how much of text
// it compared, whether that is the pattern, and whether it is all of text and may be the beginning of the pattern.
func match(text []byte, pattern string) (n int, found, open bool) {
	n = MinSize
	for rest := pattern[MinSize:]; ; n++ {
		same := commonPrefix(text[n:], rest)
		n, rest = n+same, rest[same:]
		switch {
		case rest == "":
			return n, true, false
		case n == len(text):
			return n, false, true
		case !lineBreak(text[n-1], text[n]):
			return n, false, false
		}
	}
}

// lineBreak reports whether c continues, or is, one line break after prev: LF, CR or CR LF.
func lineBreak(prev, c byte) bool {
	return c == '\n' && prev != '\n' || c == '\r' && prev != '\n' && prev != '\r'
}

// commonPrefix returns how many first bytes of a and b are equal.
func commonPrefix(a []byte, b string) int {
	n := min(len(a), len(b))
	if string(a[:n]) == b[:n] {
		return n
	}
	low := 0 // a[:low] is equal
	for size := n / 2; size > 0; size = (n - low) / 2 {
		if string(a[low:low+size]) == b[low:low+size] {
			low += size
		} else {
			n = low + size
		}
	}
	return low
}
