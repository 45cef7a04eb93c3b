package redact

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// forms returns a value, without the white space around it, as it may be written: itself, in base64, in a URL, in a JSON string. It returns nil
// for a value that is too short.
func forms(value []byte) []string {
	text := string(bytes.TrimSpace(value))
	if len(text) < MinSize {
		return nil
	}
	all := append([]string{text}, base64Forms(text)...)
	all = append(all, urlForms(text)...)
	return append(all, jsonForms(text)...)
}

// base64Forms returns the base64 of a value with 0, 1 or 2 other bytes before it in its first group. Characters that depend on the bytes before
// it are left out. The last character may depend on what is after the value: a form exists for anything, for nothing, and for a newline.
func base64Forms(value string) (all []string) {
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			text := encoding.EncodeToString(append(make([]byte, before), value...))
			whole := (before + len(value)) * 8 / 6
			first := (before*8 + 5) / 6
			line := encoding.EncodeToString(append(make([]byte, before), value+"\n"...))
			all = append(all, text[first:whole], text[first:], line[first:])
		}
	}
	return all
}

// The punctuation that functions for URLs do not encode.
var unencoded = []string{
	"-_.~",                 // Go's url.QueryEscape, Python's quote_plus, curl
	"-_.~/",                // Python's quote
	"-_.",                  // PHP's urlencode
	"*-._",                 // HTML forms, Java
	"-_.!~*'()",            // JavaScript's encodeURIComponent
	"-_.~$&+=:@",           // Go's url.PathEscape
	"-_.~$&+,;=",           // Go's url.UserPassword
	"-_.!~*'();/?:@&=+$,#", // JavaScript's encodeURI
}

// urlForms returns the percent-encodings of a value.
func urlForms(value string) (all []string) {
	for _, keep := range unencoded {
		for _, digits := range []string{"0123456789ABCDEF", "0123456789abcdef"} {
			for _, space := range []string{"%20", "+"} {
				all = append(all, percentEncode(value, keep, digits, space))
			}
		}
	}
	return all
}

func percentEncode(value, keep, digits, space string) string {
	var b strings.Builder
	for i := range len(value) {
		switch c := value[i]; {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', strings.IndexByte(keep, c) >= 0:
			b.WriteByte(c)
		case c == ' ':
			b.WriteString(space)
		default:
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
}

// jsonForms returns a value as it is written in JSON strings by Go (with html), Python (with ascii), PHP (with slash and ascii) and JavaScript.
func jsonForms(value string) (all []string) {
	for _, escape := range []string{`\u%04x`, `\u%04X`} {
		for _, ascii := range []bool{false, true} {
			for _, html := range []bool{false, true} {
				for _, slash := range []bool{false, true} {
					all = append(all, jsonEscape(value, escape, ascii, html, slash))
				}
			}
		}
	}
	return all
}

var shortEscapes = map[rune]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}

// jsonEscape escapes characters other than ASCII if ascii, <, > and & and the line separators of JavaScript if html, and / if slash. It
// replaces invalid UTF-8.
func jsonEscape(value, escape string, ascii, html, slash bool) string {
	var b strings.Builder
	for len(value) > 0 {
		c, size := utf8.DecodeRuneInString(value)
		text := value[:size]
		value = value[size:]
		switch short := shortEscapes[c]; {
		case short != "":
			b.WriteString(short)
		case slash && c == '/':
			b.WriteString(`\/`)
		case c >= 0x10000 && ascii:
			high, low := utf16.EncodeRune(c)
			fmt.Fprintf(&b, escape+escape, high, low)
		case c == utf8.RuneError && size == 1, c < ' ', c >= 0x80 && ascii, html && strings.ContainsRune("<>&\u2028\u2029", c):
			fmt.Fprintf(&b, escape, c)
		default:
			b.WriteString(text)
		}
	}
	return b.String()
}
