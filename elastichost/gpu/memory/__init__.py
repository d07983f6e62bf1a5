"""Memory that a GPU uses: registered memory of the host, and memory of the GPU that outlives its process.

Modules:
    registered_memory  memory of the host that the GPU may use
    device_memory      memory of the GPU that file descriptors carry to other processes
    memory_holder      the program that keeps these descriptors
    held_memory        gives descriptors to the holder, and gets them back
    device_layout      where a job's model lies in memory of the GPU
    arena_copies       copies the model between an arena and memory of the GPU
    write_back         the program that writes the model from the GPU's memory back to the arena
"""
