// Package packages installs, starts, upgrades and removes the packages of Muster on a Debian with systemd, dpkg and rpm.
// scripts/vm runs these tests in a virtual machine; elsewhere they skip.
package packages
