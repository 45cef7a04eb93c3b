package link

import "time"

// SetClock sets the clock of one side of a sealed connection to unixMilli at its beginning.
func SetClock(conn FrameConn, unixMilli int64) { conn.(*sealedConn).clock = unixMilli }

// SetElapsed replaces what measures for how long the machine of one side of a sealed connection has been awake, and asleep, since it began.
func SetElapsed(conn FrameConn, elapsed func() (awake, asleep time.Duration)) {
	conn.(*sealedConn).elapsed = elapsed
}

// ErrSuspended is in the chain of the error of a connection that ended because the machine slept.
var ErrSuspended = errSuspended

// MaxFirstSleep is how long a machine may sleep before it reads the first frame.
const MaxFirstSleep = maxFirstSleep

// GoodbyeFor returns the Goodbye for a session that ends with err.
func GoodbyeFor(err error) *Goodbye { return goodbyeFor(err) }

// ElapsedSince is what a connection measures with unless SetElapsed replaces it.
var ElapsedSince = elapsedSince
