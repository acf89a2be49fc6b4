// ray-project/ray#16136: a subscriber asks by a call that is answered when something happens. Where
// nothing does, the callbacks with what they captured stay, one for each question.

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

struct Request {
    std::string object_id, owner_address;
};

class ReferenceCounter {
    std::unordered_map<std::string, std::vector<std::function<void(bool)>>> waiting;

  public:
    __attribute__((noinline)) void subscribe(const Request &request) {  // LEAK
        waiting[request.object_id].push_back([request](bool) { (void)request.owner_address; });
    }

    void publish(const std::string &object_id) {
        for (auto &callback : waiting[object_id]) callback(true);
        waiting.erase(object_id);
    }
};

int main() {
    ReferenceCounter counter;
    for (int step = 0; step < 300; step++) {
        for (int number = 0; number < 300; number++) {
            std::string id = "object " + std::to_string(step) + "." + std::to_string(number);
            counter.subscribe({id, std::string(700, 'a')});
            if (number % 10 == 0) counter.publish(id);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::this_thread::sleep_for(std::chrono::seconds(2));
}
