package link

// SetClock sets the clock of one side of a sealed connection to unixMilli at its beginning.
func SetClock(conn FrameConn, unixMilli int64) { conn.(*sealedConn).clock = unixMilli }
