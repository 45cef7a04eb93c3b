// Package spec reads job specs as people write them: YAML or JSON, one job or
// several in a file, a job with its tasks or a single task written flat. It
// reports everything that is wrong at once, each problem with its place and,
// where it can be guessed, what was meant.
//
// A document becomes a tree of nodes that know their places (yaml.go, json.go);
// the tree is laid over the structs of package muster by reflection (decode.go,
// odd.go), so that there is no second list of fields; then valid.Spec and
// flow.Check look at the whole, and what they find is given the place of the
// field it is about (parse.go).
//
// What is read is bounded: the size of a file, the depth of its nesting, the
// number of its documents and of its nodes once aliases are expanded. Scalars
// keep their spelling where a text is wanted, so version: 3.10 is not 3.1.
package spec
