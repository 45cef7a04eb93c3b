// Package netns creates network namespaces with nothing but a loopback device, and sockets that listen in them while this
// process serves the connections: a socket belongs to the namespace in which it was created, whatever process holds it.
package netns
