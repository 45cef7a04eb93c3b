// Package polllink carries link sessions over plain HTTP requests, for networks whose
// proxy blocks WebSocket. The frames are the same.
//
// Every request is a POST to link.PathPoll with the worker's key as bearer
// token and, in the query, the operation and the session's id, which the worker chooses at random:
//
//	op=open            begins a session                            200
//	op=send&seq=N      body: the worker's frame N                  200 once the session has it
//	op=recv&after=N    frames after N, which acknowledges N        200, one frame a line; none after 20 seconds
//	op=close           ends the session                            200
//
// Requests are idempotent: the server confirms a frame that it already has, and
// delivers frames again that were not acknowledged. So the worker may
// repeat a request whose response was lost: a repeated frame is the same signed bytes, and the session gets it once. A session has one send and one recv
// request at a time: a second one replaces the first, whose response is 409. A session without a
// request for 60 seconds ends. The response for an ended or unknown session is 410: the worker
// opens another. A worker has at most four sessions.
package polllink
