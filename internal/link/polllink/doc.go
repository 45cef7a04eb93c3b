// Package polllink carries link sessions over plain HTTP requests, for where a
// proxy lets no WebSocket through. Frames are the same; only their way differs.
//
// Every request is a POST to link.PathPoll with the worker's key as bearer
// token and, in the query, the operation and the session's id, which the worker draws at random:
//
//	op=open            begins a session                            200
//	op=send&seq=N      body: the worker's frame N                  200 once the session has it
//	op=recv&after=N    frames after N, which acknowledges N        200, one frame a line; none after 20 seconds
//	op=close           ends the session                            200
//
// Replays are harmless: a frame that the session has is confirmed again, and
// frames that were not acknowledged are delivered again. So either side may
// repeat a request whose answer was lost. A session has one sender and one
// receiver: when a second request of a sort comes, the worker has given the
// first one up, and that one is answered 409. A session without a request for 60 seconds ends.
// One that ended or never was answers 410: the worker opens another. A worker has at most four.
package polllink
