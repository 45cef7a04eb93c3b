package muster

import (
	"bytes"
	"encoding/json"
	"strings"
)

// MarshalJSON writes the list, or the string if there is no list.
func (c Command) MarshalJSON() ([]byte, error) {
	if c.Argv != nil {
		return json.Marshal(c.Argv)
	}
	return json.Marshal(c.Shell)
}

// UnmarshalJSON reads a string or a list of strings.
func (c *Command) UnmarshalJSON(b []byte) error {
	var got Command
	var err error
	switch firstByte(b) {
	case '"':
		err = json.Unmarshal(b, &got.Shell)
	case '[':
		err = json.Unmarshal(b, &got.Argv)
	default:
		return Errorf(Invalid, `%s is not a command: write a string for the shell or a list such as ["python", "train.py"]`, Truncate(string(b)))
	}
	if err != nil {
		return Errorf(Invalid, `%s is not a command: a list has strings only, such as ["sleep", "5"]`, Truncate(string(b)))
	}
	*c = got
	return nil
}

// UnmarshalJSON reads an object without unknown fields, or a string: Text.
func (s *Script) UnmarshalJSON(b []byte) error {
	type plain Script
	var got plain
	switch firstByte(b) {
	case '"':
		if err := json.Unmarshal(b, &got.Text); err != nil {
			return Errorf(Invalid, "script: %w", err)
		}
	case '{':
		if err := decodeStrict("script", b, &got); err != nil {
			return err
		}
	default:
		return Errorf(Invalid, "%s is not a script: write its text, or an object with text, file or url", Truncate(string(b)))
	}
	*s = Script(got)
	return nil
}

// UnmarshalJSON reads an object without unknown fields, or a string such as /data:/mnt:ro.
func (m *Mount) UnmarshalJSON(b []byte) error {
	type plain Mount
	var got plain
	if firstByte(b) == '{' {
		if err := decodeStrict("mount", b, &got); err != nil {
			return err
		}
	} else {
		var s string
		err := json.Unmarshal(b, &s)
		s, got.ReadOnly = strings.CutSuffix(s, ":ro")
		var ok bool
		if got.Source, got.Target, ok = strings.Cut(s, ":"); err != nil || !ok || strings.Contains(got.Target, ":") {
			return Errorf(Invalid, "%s is not a mount: write source:target, with :ro for read-only, such as /data:/data:ro", Truncate(string(b)))
		}
	}
	*m = Mount(got)
	return nil
}

// decodeStrict decodes an object and rejects unknown fields.
func decodeStrict(name string, b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return Errorf(Invalid, "%s: %w", name, err)
	}
	return nil
}

func firstByte(b []byte) byte {
	if b = bytes.TrimLeft(b, " \t\r\n"); len(b) > 0 {
		return b[0]
	}
	return 0
}

// UnmarshalJSON reads an object without unknown fields, or a string: Path.
func (c *Checkpoint) UnmarshalJSON(b []byte) error {
	type plain Checkpoint
	var got plain
	switch firstByte(b) {
	case '"':
		if err := json.Unmarshal(b, &got.Path); err != nil {
			return Errorf(Invalid, "checkpoint: %w", err)
		}
		if got.Path == "" {
			return Errorf(Invalid, "the checkpoint folder is empty: write a folder such as ckpt/, or {} for $MUSTER_CHECKPOINT alone")
		}
	case '{':
		if err := decodeStrict("checkpoint", b, &got); err != nil {
			return err
		}
	default:
		return Errorf(Invalid, "%s is not a checkpoint: write a folder such as ckpt/, or an object with path, every, signal and grace", Truncate(string(b)))
	}
	*c = Checkpoint(got)
	return nil
}

// UnmarshalJSON reads an object without unknown fields, or a number: Size.
func (g *Gang) UnmarshalJSON(b []byte) error {
	type plain Gang
	var got plain
	if firstByte(b) == '{' {
		if err := decodeStrict("gang", b, &got); err != nil {
			return err
		}
	} else if err := json.Unmarshal(b, &got.Size); err != nil {
		return Errorf(Invalid, "%s is not a gang: write the number of members, or an object with size and on_loss", Truncate(string(b)))
	}
	*g = Gang(got)
	return nil
}
