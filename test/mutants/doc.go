// Package mutants shows that the tests of test/attack fail without the guards that they are about: it removes each guard in a copy of its source file,
// builds the program and the tests with that file in place of the original (go help build, -overlay), and expects the test to fail.
package mutants
