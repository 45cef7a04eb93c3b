// Package resultcache computes what determines the result of a task, so that an identical task takes the result instead of running. It is pure.
//
// All of a stage's resolved spec counts, except where it says only when a task runs, how long, how often, and what happens around it. So a field
// that is added to the spec counts until it is excluded here. Files count by their content, secrets by name and version, and an element of an
// array or a matrix by its index and values.
package resultcache

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
)

// format is part of each key. Change it with the meaning of fields, so that older entries are not found.
const format = "muster result cache 1"

// Limits of fields: what is longer or more is their digest.
const (
	maxValue  = 100 // bytes of a value
	maxFields = 300
)

// Input is what determines the result of a task.
type Input struct {
	Spec    *muster.TaskSpec   // of the stage, resolved
	Element int                // position in the stage
	Files   []muster.InputFile // artifacts of other stages
	Kind    string             // version of the definition of the spec's kind; "" if the kind has none
	Secrets []string           // version of each secret of the spec
}

// Compute returns the key and the fields of a task. It is Invalid if its result cannot be cached, because something that it uses may change
// under the same name.
func Compute(in *Input) (*muster.TaskCache, error) {
	if err := Check(in.Spec); err != nil {
		return nil, err
	}
	var list fields
	if err := list.addSpec(in.Spec); err != nil {
		return nil, err
	}
	if in.Kind != "" {
		list.add("kind.version", in.Kind)
	}
	if in.Spec.HasElements() {
		list.add("element", in.Spec.Element(in.Element))
		list.add("index", strconv.Itoa(in.Spec.Index(in.Element)))
	}
	if a := in.Spec.Array; a != nil && in.Element < len(a.Items) {
		list.add("item", string(a.Items[in.Element]))
	}
	for _, f := range in.Files {
		list.add("inputs."+f.Path, f.SHA256)
	}
	for i, version := range in.Secrets {
		list.add("secrets."+in.Spec.Secrets[i].Name, version)
	}
	slices.SortStableFunc(list, func(a, b muster.CacheField) int { return strings.Compare(a.Name, b.Name) })
	return &muster.TaskCache{Key: digest(list), Fields: list.bounded()}, nil
}

// Check returns an Invalid error for a stage that uses something by a name under which it may change. A reference to another stage is not known yet.
func Check(t *muster.TaskSpec) error {
	if _, version, ok := muster.ParseImage(t.Image); t.Image != "" && !strings.Contains(t.Image, "${") && (!ok || !strings.HasPrefix(version, "@")) {
		return muster.Errorf(muster.Invalid, "the image %s may change: a result is cached for an image with its digest, such as python@sha256: and 64 hex digits", muster.Truncate(t.Image))
	}
	if t.Script != nil && t.Script.URL != "" && t.Script.SHA256 == "" {
		return muster.Errorf(muster.Invalid, "the script at %s may change: a result is cached for a script with its sha256", muster.RedactURL(t.Script.URL))
	}
	return nil
}

type fields []muster.CacheField

func (l *fields) add(name, value string) {
	*l = append(*l, muster.CacheField{Name: name, Value: value})
}

// addSpec adds the fields of a spec, and those of its objects.
func (l *fields) addSpec(t *muster.TaskSpec) error {
	c := *t
	c.Name, c.Needs, c.When = "", nil, ""                     // when it runs
	c.Array, c.Matrix, c.Sweep, c.Inputs = nil, nil, nil, nil // as far as it is the task's: see Compute
	c.Timeout, c.QueueTimeout, c.LogCap = 0, 0, 0             // how long
	c.Retries, c.Kill = muster.Retries{}, muster.Kill{}       // what happens when it fails or is stopped
	c.Disconnect, c.Checkpoint = muster.Disconnect{}, nil
	c.Cache, c.SignedBy = 0, ""
	parts, err := object(c)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		inner, err := object(parts[name])
		if err != nil || len(inner) == 0 {
			l.add(name, string(parts[name]))
			continue
		}
		for _, in := range slices.Sorted(maps.Keys(inner)) {
			l.add(name+"."+in, string(inner[in]))
		}
	}
	return nil
}

// object returns the fields of a value that is an object in JSON.
func object(v any) (map[string]json.RawMessage, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "the task cannot be written as JSON: %w", err)
	}
	var m map[string]json.RawMessage
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&m); err != nil {
		return nil, err
	}
	return m, nil
}

// bounded returns the fields as they are stored: long and confidential values as their digests, and the last of too many fields as one.
func (l *fields) bounded() []muster.CacheField {
	all := *l
	list := slices.Clone(all)
	for i := range list {
		if f := &list[i]; len(f.Value) > maxValue || Confidential(f.Name) {
			f.Value = "sha256:" + digest(fields{*f})
		}
	}
	if len(list) > maxFields {
		list = append(list[:maxFields-1:maxFields-1], muster.CacheField{Name: "others", Value: "sha256:" + digest(all[maxFields-1:])})
	}
	return list
}

// Confidential reports whether the value of a field, and its digest, which could be guessed, is for those only who may see all of the spec.
func Confidential(name string) bool { return strings.HasPrefix(name, "env.") || name == "script.url" }

func digest(l fields) string {
	h := sha256.New()
	part := func(s string) {
		h.Write([]byte(strconv.Itoa(len(s)) + ":"))
		h.Write([]byte(s))
	}
	part(format)
	for _, f := range l {
		part(f.Name)
		part(f.Value)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Difference is a field in which a task and an entry differ. "" means that there is none.
type Difference struct {
	Name  string
	Task  string
	Entry string
}

// Differences compares sorted fields.
func Differences(task, entry []muster.CacheField) []Difference {
	var list []Difference
	for len(task)+len(entry) > 0 {
		var c int
		switch {
		case len(task) == 0:
			c = 1
		case len(entry) == 0:
			c = -1
		default:
			c = cmp.Compare(task[0].Name, entry[0].Name)
		}
		var d Difference
		if c <= 0 {
			d.Name, d.Task, task = task[0].Name, task[0].Value, task[1:]
		}
		if c >= 0 {
			d.Name, d.Entry, entry = entry[0].Name, entry[0].Value, entry[1:]
		}
		if d.Task != d.Entry {
			list = append(list, d)
		}
	}
	return list
}

// Nearest returns the entry that differs least from a task in the number of fields, the first of several, and nil if there are none. An entry of
// the same stage's name and kind is nearer than all others.
func Nearest(name, kind string, task []muster.CacheField, entries []muster.CacheEntry) *muster.CacheEntry {
	var nearest *muster.CacheEntry
	least := 0
	for i := range entries {
		e := &entries[i]
		n := len(Differences(task, e.Fields))
		if e.Kind != kind {
			n += 2 * maxFields
		}
		if e.Name != name {
			n += maxFields
		}
		if nearest == nil || n < least {
			nearest, least = e, n
		}
	}
	return nearest
}
