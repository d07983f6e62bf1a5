"""What processes say to each other: messages, frames, sockets. The only place that imports zmq."""
