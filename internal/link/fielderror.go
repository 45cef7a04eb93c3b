package link

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// fieldError is an error in one field of a frame. Callers add the path as they return, so that
// valid frames do not pay for it.
type fieldError struct {
	path string
	msg  string
}

func (e *fieldError) Error() string {
	return strings.TrimPrefix(e.path+" "+e.msg, " ")
}

// fieldErrorf returns a fieldError without a path.
func fieldErrorf(format string, args ...any) error {
	return &fieldError{msg: fmt.Sprintf(format, args...)}
}

// inField adds the field name in front of the path of err.
func inField(name string, err error) error {
	e, ok := err.(*fieldError) //nolint:errorlint // only ever passed up bare, within this package
	switch {
	case err == nil:
		return nil
	case !ok:
		return &fieldError{path: name, msg: err.Error()}
	case e.path == "" || e.path[0] == '[':
		e.path = name + e.path
	default:
		e.path = name + "." + e.path
	}
	return e
}

// asFieldError converts an error of package json.
func asFieldError(err error) error {
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return &fieldError{path: fieldPath(e.JSONPointer), msg: fmt.Sprintf("is invalid: %v, at byte %d", e.Err, e.ByteOffset)}
	}
	e, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return err
	}
	bad := &fieldError{path: fieldPath(e.JSONPointer)}
	switch {
	case errors.Is(e.Err, json.ErrUnknownName):
		bad.msg = "is not a field of this protocol"
	case e.Err == nil:
		bad.msg = fmt.Sprintf("has the wrong type: want %v", e.GoType)
	case len(e.JSONValue) > 0:
		bad.msg = fmt.Sprintf("is %.80s: %v", e.JSONValue, e.Err)
	default:
		bad.msg = "is invalid: " + strings.TrimPrefix(e.Err.Error(), "json: ")
	}
	return bad
}

// fieldPath converts "/finished/0/usage" to "finished[0].usage".
func fieldPath(p jsontext.Pointer) string {
	var path strings.Builder
	for name := range p.Tokens() {
		switch {
		case strings.Trim(name, "0123456789") == "":
			name = "[" + name + "]"
		case path.Len() > 0:
			name = "." + name
		}
		path.WriteString(name)
	}
	return path.String()
}
