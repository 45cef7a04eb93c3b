package muster

import (
	"errors"
	"fmt"
)

// Code classifies an Error. The API translates it to an HTTP status, the command
// line to an exit status.
type Code string

// The codes. They are stable: clients match on them.
const (
	Invalid         Code = "invalid"         // the request is malformed: HTTP 400, exit 2
	InvalidSpec     Code = "invalid_spec"    // the job spec is wrong: HTTP 422, exit 6
	Unauthenticated Code = "unauthenticated" // no or unknown token: HTTP 401, exit 4
	Forbidden       Code = "forbidden"       // authenticated, but not allowed: HTTP 403, exit 4
	NotFound        Code = "not_found"       // HTTP 404, exit 3
	Conflict        Code = "conflict"        // not possible in the current state: HTTP 409, exit 5
	TooLarge        Code = "too_large"       // HTTP 413, exit 2
	Unavailable     Code = "unavailable"     // not done, safe to retry: HTTP 503, exit 7
	StorageFull     Code = "storage_full"    // not done, no space: HTTP 507, exit 7
	Undetermined    Code = "undetermined"    // no answer in time, may have been done: HTTP 504, exit 7
	Internal        Code = "internal"        // a bug: HTTP 500, exit 1
)

// Error is the error type that packages return to each other.
type Error struct {
	Code    Code
	Message string       // one sentence for the user: what, where, what to do
	Fields  []FieldError // errors at places of a document
	Err     error        // the cause or nil; Message includes its text
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an Error. The operands of %w verbs become its cause; there may be several.
func Errorf(code Code, format string, args ...any) *Error {
	wrapped := fmt.Errorf(format, args...)
	cause := errors.Unwrap(wrapped)
	if _, multi := wrapped.(interface{ Unwrap() []error }); multi {
		cause = wrapped
	}
	return &Error{Code: code, Message: wrapped.Error(), Err: cause}
}

// CodeOf returns the code of the first Error in err's chain, and Internal if
// there is none.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Internal
}

// FieldError is an error at one place of a document.
type FieldError struct {
	Path    string `json:"path"`             // such as "tasks[1].resources.memory"
	Line    int    `json:"line,omitempty"`   // from 1; 0 if unknown
	Column  int    `json:"column,omitempty"` // from 1; 0 if unknown
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // such as the nearest known field
}

// String returns "line 1, column 2: path: message (hint)"; unknown parts are left out.
func (f FieldError) String() string {
	s := f.Message
	if f.Path != "" {
		s = f.Path + ": " + s
	}
	if f.Line > 0 {
		s = fmt.Sprintf("line %d, column %d: %s", f.Line, f.Column, s)
	}
	if f.Hint != "" {
		s += " (" + f.Hint + ")"
	}
	return s
}
