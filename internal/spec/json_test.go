package spec

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"
)

// FuzzJSON compares the reader with encoding/json.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,-2.5e3,true,false,null,"b","\u00e4\ud83d\ude00\ud800\n\"\\"],"c":{},"d":[],"":{"e":[[],{}]}}`, " [ ] ", `"a"`, "1", "\n{\"a\" :\t1 ,\r\n\"b\": [ 1 , 2 ] }\n", `{"a":"[{,\"]"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !utf8.Valid(data) || !json.Valid(data) {
			return
		}
		var b builder
		n := b.fromJSON(data)
		if len(b.wrong) > 0 {
			return
		}
		read := func(data []byte) (v any) {
			d := json.NewDecoder(bytes.NewReader(data))
			d.UseNumber()
			if err := d.Decode(&v); err != nil {
				t.Fatalf("%q: %v", data, err)
			}
			return v
		}
		if got, want := read(n.json()), read(data); !reflect.DeepEqual(got, want) {
			t.Errorf("%q is decoded as %v, want %v", data, got, want)
		}
	})
}

func TestPlacesInJSON(t *testing.T) {
	var b builder
	n := b.fromJSON([]byte("{\n \"ä\": [1, \"ü\", {\"b\":\ttrue}],\r\n \"c\" : null}"))
	inner := n.fields[0].value
	for _, tt := range []struct{ got, want place }{
		{n.at, place{1, 1}},
		{n.fields[0].at, place{2, 2}},
		{inner.at, place{2, 7}},
		{inner.items[0].at, place{2, 8}},
		{inner.items[1].at, place{2, 11}},
		{inner.items[2].fields[0].at, place{2, 17}},
		{inner.items[2].fields[0].value.at, place{2, 22}},
		{n.fields[1].value.at, place{3, 8}},
	} {
		if tt.got != tt.want {
			t.Errorf("%v, want %v", tt.got, tt.want)
		}
	}
}
