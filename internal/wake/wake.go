// Package wake notifies a goroutine that there is something to do, once for any number of reasons.
package wake

// New returns a channel for Set.
func New() chan struct{} { return make(chan struct{}, 1) }

// Set puts a token into c, which has capacity 1, unless it holds one. It never blocks.
func Set(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
