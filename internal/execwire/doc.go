// Package execwire is the protocol of commands in running tasks, and of copies from and to their folders: the frames that a client and a
// worker exchange through the server, and the connection that carries their data with flow control.
//
//	client ── WebSocket ── server (execrelay) ── WebSocket or polls ── worker (taskexec)
//	   Conn                   relays frames                               Conn
//
// A frame is one JSON text, for example:
//
//	{"start":{"command":{"argv":["bash"],"tty":true,"stdin":true,"size":{"rows":24,"columns":80},"term":"xterm"}}}   client, first
//	{"ready":true}                                                                                                     worker
//	{"stream":"stdout","data":"JCA="}                                                                                  either side
//	{"ack":2}                                                                                                          either side
//	{"exit":{"code":0}}                                                                                                worker, last
//
// The server checks the first frame, and relays the others without reading them; it holds at most one of each direction. A side has at most
// Window bytes of data under way that the other one has not acknowledged, and both always read. So data that is not read waits at its
// source, while signals, sizes and keep-alives pass. A side without a frame for Silence is gone.
package execwire
