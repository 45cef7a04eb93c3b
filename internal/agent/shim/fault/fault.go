// Package fault turns a panic into an error, so that a bug which one attempt runs into does not end
// the process that supervises all attempts of a worker. What the Go runtime itself ends a process for,
// such as concurrent writes to a map, cannot be caught.
package fault

import (
	"fmt"
	"runtime/debug"
)

// PanicError is the error that a panic has become.
type PanicError struct {
	Value any
	Stack []byte // of the goroutine that panicked
}

// Error returns the value of the panic, without the stack.
func (p *PanicError) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Catch calls f and returns its error, or a *PanicError if it panics.
func Catch(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = toPanicError(v)
		}
	}()
	return f()
}

// Run calls f and returns nil, or a *PanicError if it panics.
func Run(f func()) error {
	return Catch(func() error {
		f()
		return nil
	})
}

// toPanicError keeps the stack of a panic that was passed on from another goroutine.
func toPanicError(v any) *PanicError {
	if p, ok := v.(*PanicError); ok {
		return p
	}
	return &PanicError{Value: v, Stack: debug.Stack()}
}
