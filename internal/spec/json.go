package spec

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// fromJSON reads a valid JSON document. It is read apart from YAML because YAML
// has other rules for escapes and tabs.
func (b *builder) fromJSON(data []byte) *node {
	r := jsonReader{builder: b, data: data, dec: json.NewDecoder(bytes.NewReader(data)), at: place{1, 1}}
	r.dec.UseNumber()
	return r.value(0)
}

// jsonReader follows a decoder's tokens and their places.
type jsonReader struct {
	*builder
	data   []byte
	dec    *json.Decoder
	offset int // of at
	at     place
}

// token returns the next token and where it begins. The document is valid, so there is one.
func (r *jsonReader) token() (json.Token, place) {
	start := int(r.dec.InputOffset())
	for start < len(r.data) && bytes.IndexByte([]byte(" \t\r\n,:"), r.data[start]) >= 0 {
		start++
	}
	for r.offset < start {
		c, size := utf8.DecodeRune(r.data[r.offset:])
		r.offset += size
		r.at.column++
		if c == '\n' {
			r.at = place{r.at.line + 1, 1}
		}
	}
	tok, err := r.dec.Token()
	if err != nil {
		return nil, r.at
	}
	return tok, r.at
}

func (r *jsonReader) value(depth int) *node {
	tok, at := r.token()
	n := &node{at: at}
	if r.full(at, depth) {
		return n
	}
	switch tok := tok.(type) {
	case bool:
		n.kind, n.text = boolean, "false"
		if tok {
			n.text = "true"
		}
	case json.Number:
		n.kind, n.text, n.number = number, tok.String(), tok.String()
	case string:
		n.kind, n.text = text, tok
	case json.Delim:
		if tok == '[' {
			r.list(n, depth)
		} else {
			r.object(n, depth)
		}
	}
	return n
}

func (r *jsonReader) list(n *node, depth int) {
	n.kind = list
	for r.dec.More() && r.nodes < maxNodes {
		n.items = append(n.items, r.value(depth+1))
	}
	r.token()
}

func (r *jsonReader) object(n *node, depth int) {
	n.kind = object
	seen := make(map[string]bool)
	for r.dec.More() && r.nodes < maxNodes {
		tok, at := r.token()
		name, isText := tok.(string)
		if !isText {
			return
		}
		r.put(n, seen, field{name: name, at: at, value: r.value(depth + 1)})
	}
	r.token()
}
