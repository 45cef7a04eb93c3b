// Package fault converts panics to errors, so that a bug in the work for one attempt does not end the process that supervises all attempts of a
// worker. Fatal errors of the Go runtime, such as concurrent map writes, cannot be caught.
package fault

import (
	"fmt"
	"runtime/debug"
)

// PanicError is the error of a panic.
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

// toPanicError keeps the stack of a panic that another goroutine passed on.
func toPanicError(v any) *PanicError {
	if p, ok := v.(*PanicError); ok {
		return p
	}
	return &PanicError{Value: v, Stack: debug.Stack()}
}
