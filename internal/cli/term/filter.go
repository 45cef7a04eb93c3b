package term

import (
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Mode selects what a Filter passes.
type Mode int

const (
	// Text passes text, line feeds, carriage returns, tabs and backspaces. Escape sequences and other control characters are removed.
	// Characters that change the direction of text, and invisible ones except joiners, become U+FFFD.
	Text Mode = iota

	// Interactive is for a program that draws on the screen, such as an editor: it also passes the sequences that move the cursor, erase,
	// scroll, and set colors and modes of the screen. Sequences that set the title or the clipboard, print, resize the window, or make the
	// terminal send an answer, which would be read as typed, are removed.
	Interactive

	// message is Text without carriage returns and backspaces, with the sequences of Paint: what the program itself writes.
	message
)

// Filter removes what acts on a terminal from a stream of bytes, which may be cut anywhere. Bytes that are not UTF-8 become U+FFFD. It must
// not be used concurrently.
type Filter struct {
	w    io.Writer
	mode Mode
	mark string // at the end of the parameters of Paint's sequences; "" means that there are none

	state   filterState
	pending []byte // of an unfinished sequence or character
	dropped int    // bytes of an unfinished string

	modes  map[string]bool // modes of the terminal that the stream has set or reset, if Close restores them: whether they are set
	keypad bool            // the stream has changed what the keypad sends
}

type filterState int

const (
	inText     filterState = iota
	inEscape               // after ESC, and maybe intermediate bytes, which are pending
	inSequence             // a control sequence: after ESC [, with parameters and intermediate bytes pending
	inString               // such as a title, up to BEL or ESC \
)

const (
	maxSequence = 64      // bytes of a sequence that may pass
	maxString   = 4 << 10 // bytes of a string without an end, after which the stream is text again

	bel, can, sub, esc, del = 0x07, 0x18, 0x1a, 0x1b, 0x7f
)

// NewFilter returns a filter that writes to w. Only Write and Close use w.
func NewFilter(w io.Writer, m Mode) *Filter { return &Filter{w: w, mode: m} }

// Write writes what p adds to the stream.
func (f *Filter) Write(p []byte) (int, error) {
	if out := f.Append(nil, p); len(out) > 0 {
		if _, err := f.w.Write(out); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Close writes what restores the modes of the terminal that an Interactive stream has changed, such as that of reports about the mouse.
func (f *Filter) Close() error {
	f.Reset()
	var b strings.Builder
	for _, name := range modesOfInput {
		if on, changed := f.modes[name]; changed && on {
			b.WriteString("\x1b[?" + name + "l")
		}
	}
	for _, name := range modesOfScreen {
		if on, changed := f.modes[name]; changed && !on {
			b.WriteString("\x1b[?" + name + "h")
		}
	}
	if f.keypad {
		b.WriteString("\x1b>")
	}
	f.modes, f.keypad = nil, false
	if b.Len() == 0 {
		return nil
	}
	_, err := io.WriteString(f.w, b.String())
	return err
}

var (
	// modesOfInput are off unless a program runs: keys of the cursor, reports about the mouse, the focus, pasting and the window; the
	// second screen.
	modesOfInput = []string{"1", "9", "1000", "1001", "1002", "1003", "1004", "1005", "1006", "1007", "1015", "1016", "2004", "2026", "2031", "2048", "5", "47", "1047", "1049"}
	// modesOfScreen are on unless a program runs: lines wrap, the cursor is visible.
	modesOfScreen = []string{"7", "25"}
)

// Reset forgets an unfinished sequence: what follows is not a part of it.
func (f *Filter) Reset() { f.state, f.pending = inText, nil }

// Append appends what p adds to the stream to out.
func (f *Filter) Append(out, p []byte) []byte {
	for i := 0; i < len(p); {
		switch f.state {
		case inText:
			var n int
			out, n = f.text(out, p[i:])
			i += n
		case inEscape:
			out, i = f.escape(out, p[i], i)
		case inSequence:
			out, i = f.sequence(out, p[i], i)
		case inString:
			out, i = f.skipString(out, p[i], i)
		}
	}
	return out
}

// text reads text up to the next escape character, and returns the number of bytes read.
func (f *Filter) text(out, p []byte) ([]byte, int) {
	i := 0
	for len(f.pending) > 0 && i < len(p) { // a cut character
		f.pending = append(f.pending, p[i])
		i++
		if !utf8.FullRune(f.pending) {
			continue
		}
		r, n := utf8.DecodeRune(f.pending)
		rest := len(f.pending) - n // of an invalid character, n is 1
		f.pending = nil
		out = f.character(out, r)
		if i -= rest; i < 0 { // bytes of earlier writes, which continue no character either
			for ; i < 0; i++ {
				out = f.character(out, utf8.RuneError)
			}
		}
	}
	for i < len(p) {
		switch b := p[i]; {
		case b == esc:
			f.state = inEscape
			return out, i + 1
		case b >= ' ' && b < del:
			out = append(out, b)
			i++
		case b < utf8.RuneSelf:
			out = f.control(out, b)
			i++
		case !utf8.FullRune(p[i:]):
			f.pending = append(f.pending, p[i:]...)
			return out, len(p)
		default:
			r, n := utf8.DecodeRune(p[i:])
			out = f.character(out, r)
			i += n
		}
	}
	return out, i
}

// character appends a character beyond ASCII.
func (f *Filter) character(out []byte, r rune) []byte {
	if unicode.IsControl(r) || f.mode != Interactive && Unsafe(r) {
		r = utf8.RuneError
	}
	return utf8.AppendRune(out, r)
}

// control appends a control character of ASCII, if it passes.
func (f *Filter) control(out []byte, b byte) []byte {
	drawn := "\n\t"
	switch f.mode {
	case Text:
		drawn = "\n\t\r\b"
	case Interactive:
		drawn = "\n\t\r\b\a\v\f\x0e\x0f" // the last two select a character set
	case message:
	}
	if strings.IndexByte(drawn, b) >= 0 {
		out = append(out, b)
	}
	return out
}

// The following methods read the byte at index i, and return the index of the next one: the same, if the byte belongs to what follows.

func (f *Filter) escape(out []byte, b byte, i int) ([]byte, int) {
	switch first := len(f.pending) == 0; {
	case b == '[' && first:
		f.state = inSequence
	case strings.IndexByte("]PX^_", b) >= 0 && first:
		f.state, f.dropped = inString, 0
	case b >= ' ' && b < '0' && len(f.pending) < maxSequence:
		f.pending = append(f.pending, b)
	case b >= '0' && b < del:
		if f.mode == Interactive && drawsEscape(string(f.pending), b) {
			f.keypad = f.keypad || first && b == '='
			out = append(append(append(out, esc), f.pending...), b)
		}
		f.Reset()
	case b == can || b == sub:
		f.Reset()
	default:
		f.Reset()
		return out, i
	}
	return out, i + 1
}

func (f *Filter) sequence(out []byte, b byte, i int) ([]byte, int) {
	switch {
	case b >= ' ' && b < '@':
		if len(f.pending) <= maxSequence { // a longer one does not pass
			f.pending = append(f.pending, b)
		}
	case b >= '@' && b < del:
		if p, ok := f.passes(string(f.pending), b); ok {
			out = append(append(append(out, esc, '['), p...), b)
		}
		f.Reset()
	case b == can || b == sub:
		f.Reset()
	default:
		f.Reset()
		return out, i
	}
	return out, i + 1
}

func (f *Filter) skipString(out []byte, b byte, i int) ([]byte, int) {
	f.dropped++
	switch {
	case b == bel || b == can || b == sub:
		f.Reset()
	case b == esc:
		f.state = inEscape // ESC \ is removed as any other
	case f.mode != Interactive && (b == '\n' || f.dropped > maxString): // images are long
		f.Reset()
		return out, i
	}
	return out, i + 1
}

// passes returns the parameters of a control sequence that passes.
func (f *Filter) passes(params string, final byte) (string, bool) {
	switch {
	case len(params) > maxSequence:
		return "", false
	case f.mode == Interactive:
		f.recordModes(params, final)
		return params, drawsSequence(params, final)
	case f.mark == "" || final != 'm':
		return "", false
	}
	return strings.CutSuffix(params, f.mark)
}

// recordModes records the private modes that a sequence sets or resets.
func (f *Filter) recordModes(params string, final byte) {
	list, private := strings.CutPrefix(params, "?")
	if !private || final != 'h' && final != 'l' {
		return
	}
	for name := range strings.SplitSeq(list, ";") {
		if name = strings.TrimLeft(name, "0"); slices.Contains(modesOfInput, name) || slices.Contains(modesOfScreen, name) {
			if f.modes == nil {
				f.modes = map[string]bool{}
			}
			f.modes[name] = final == 'h'
		}
	}
}

// drawsSequence reports whether a control sequence acts on the screen only, and makes the terminal send nothing.
func drawsSequence(params string, final byte) bool {
	i := strings.IndexFunc(params, func(r rune) bool { return r < '0' })
	intermediate := ""
	if i >= 0 {
		params, intermediate = params[:i], params[i:]
	}
	private := ""
	if params != "" && params[0] > ';' {
		private, params = params[:1], params[1:]
	}
	if strings.Trim(params, "0123456789:;") != "" {
		return false
	}
	finals := ""
	switch private + intermediate {
	case "":
		finals = "@ABCDEFGHIJKLMPSTXZ`abdefghlmrsu" // move, erase, insert, delete, scroll; modes, styles, margins
	case "?":
		finals = "hlJK"
	case " ":
		finals = "q" // the shape of the cursor
	case "!":
		finals = "p" // a soft reset
	}
	return strings.IndexByte(finals, final) >= 0
}

// drawsEscape does the same for an escape sequence.
func drawsEscape(intermediate string, final byte) bool {
	switch intermediate {
	case "":
		return strings.IndexByte("78=>DEHMNOcno|}~", final) >= 0
	case "(", ")", "*", "+", "-", ".", "/": // character sets
		return true
	case "#":
		return final >= '3' && final <= '8' // large lines
	}
	return false
}

// Unsafe reports whether a character does not show as itself: control characters, line separators, and those that change the direction of
// text or are invisible. The joiners of emoji and scripts are safe.
func Unsafe(r rune) bool {
	const nonJoiner, joiner = '\u200c', '\u200d'
	if r >= ' ' && r < del {
		return false
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) && r != nonJoiner && r != joiner || r == '\u2028' || r == '\u2029'
}
