// Package netns makes networks that have nothing but a loopback device, and sockets that
// listen in them, of which this process serves what connects: a socket belongs to the network in which it was
// made, whoever holds it.
package netns
