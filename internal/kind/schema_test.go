package kind

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

// TestInputsAreBoundByTheirSchemas checks that a schema and an input together cannot keep a server busy.
func TestInputsAreBoundByTheirSchemas(t *testing.T) {
	text := "name: many\nabout: Take numbers.\nentry: [./x]\ninput:\n  type: object\n  properties:\n    list:\n      items:\n        anyOf:\n" +
		strings.Repeat("          - const: 1\n", 1500)
	k, err := Parse(fstest.MapFS{FileName: {Data: []byte(text)}, "x": {Mode: 0o755}}, "many")
	if err != nil {
		t.Fatal(err)
	}
	list := func(n int) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"list": [%s1]}`, strings.Repeat("1,", n)))
	}
	if wrong := k.CheckInput(list(10), true); len(wrong) > 0 {
		t.Errorf("a short list gives %v", wrong)
	}
	if wrong := k.CheckInput(list(1000), true); len(wrong) != 1 || !strings.Contains(wrong[0].Message, "pass them as a file") {
		t.Errorf("a long list gives %v", wrong)
	}
}
