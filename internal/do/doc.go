// Package do carries out the kinds that need no Python: the program that their tasks execute is muster itself.
package do
