// Package wslink carries link sessions over WebSocket: one text message a
// frame, at link.PathSocket, with the worker's key as the bearer token of the
// upgrade request. Messages are not compressed: frames are small or, like logs
// in base64, cost more time to deflate than a local network saves.
package wslink
