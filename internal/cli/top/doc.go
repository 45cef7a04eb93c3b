// Package top is muster top: a live view of the fleet for terminals.
//
// # Model
//
// One goroutine, that of bubbletea, owns the model. A page is one screen: the
// four tabs, a job, a task, its log, a worker. Pages that were opened lie on a
// stack; Esc takes the top one away.
//
//	live.Feed ──events──► tick (4 a second) ──► page.changed ──► page.load ──► client
//	                                                                  │
//	    terminal ◄── frame, if it differs ◄── page.draw ◄── result ◄──┘
//
// Events only say what is stale. What is on the screen is then read again, page by
// page, never more often than every half second and never for more than a fifth of
// the time: a slow server is asked less often. So what top costs depends on
// what is visible, and not on the size of the fleet.
//
// # Bounds
//
// A list holds at most maxRows rows, the end of a log maxRingLines lines and maxRingBytes bytes, a page with a log maxSegmentBytes
// of it, a batch of events live.MaxEvents. Results change the frame at most four times a
// second, keys at once; the terminal gets only the cells that differ.
package top
