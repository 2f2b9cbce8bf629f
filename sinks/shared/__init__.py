"""Code that the bridge, the console and the sinks share, and that is not about sinks.

It is part of `sinks` because only `sinks` and `wire` are imported by both programs, and nothing
here goes over the wire. An import contract keeps it apart from the sinks: it imports no other
package of this project.
"""
