package client

var PartName = partName
